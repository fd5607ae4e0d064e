"""Starts the ranks of one run through torch's elastic launcher, here or on several machines, and names who died.

    python -m laptime.ranks RANKS SPEC.json RECORD.json
    python -m laptime.ranks RANKS SPEC.json RECORD.json --nodes MIN:MAX --node INDEX --endpoint HOST:PORT --run ID

Each rank is a `laptime.worker`. Rank 0 speaks on standard output, the others in logs of their own beside the record.
Where a rank dies on one machine, all others are ended and `ranks.json` says which it was.

On several machines one such launcher runs on each, with RANKS ranks. They meet at the endpoint, which the launcher of
node 0 serves; where ranks or a whole node are lost, those that are left meet again and start their ranks anew, which go
on from the last checkpoint (see docs/several-nodes.md).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from laptime.host.processes import ENDPOINT_LOST, PEER_LOST, RANKS_FILE, child_command, child_environment, leave
from laptime.nodes import Nodes, add_options, read_nodes
from laptime.records import write_json

_LOOPBACK = "127.0.0.1"
# A node counts as lost when it has said nothing for three of these. torch's own are 5 s and three.
_HEARTBEAT_S, _MISSED = 2, 3


@dataclass(frozen=True)
class Asked:
    """What the command line says.

    Attributes:
        ranks: on this machine.
        nodes: which machines there are; None for this one alone.
    """

    ranks: int
    spec: Path
    record: Path
    nodes: Nodes | None


def start(asked: Asked) -> None:
    """Runs the ranks to their end; raises ChildFailedError where one failed and is not started again."""
    there = asked.nodes
    config = LaunchConfig(
        min_nodes=there.least if there else 1,
        max_nodes=there.most if there else 1,
        nproc_per_node=asked.ranks,
        run_id=there.run if there else f"laptime-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint=there.endpoint if there else f"{_LOOPBACK}:0",  # port 0: the store takes a free one
        rdzv_configs=_meeting(there) if there else {},
        local_addr=there.address if there else _LOOPBACK,
        max_restarts=there.restarts if there else 0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
    )
    _, *words = child_command("laptime.worker")
    elastic_launch(config, sys.executable)(*words, str(asked.spec), str(asked.record))


def _meeting(nodes: Nodes) -> dict[str, int | str]:
    """How the launchers meet: node 0 serves, and how long the least number of nodes waits for further ones."""
    return {
        "is_host": "true" if nodes.index == 0 else "false",
        "last_call_timeout": nodes.last_call_s,
        "keep_alive_interval": _HEARTBEAT_S,
        "keep_alive_max_attempt": _MISSED,
        "read_timeout": nodes.patience_s,
    }


def first_failure(failures: dict[int, ProcessFailure]) -> tuple[int, int]:
    """Rank and exit code of the one that died of itself: not of the launcher's signal, nor of another one's end."""
    consequences = (PEER_LOST, -signal.SIGTERM)
    own = {rank: f for rank, f in failures.items() if f.exitcode not in consequences} or failures
    rank = min(own, key=lambda r: (own[r].timestamp, r))
    return rank, own[rank].exitcode


def read_command(arguments: list[str]) -> Asked:
    """Reads the command line; ends the process where it makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m laptime.ranks", description="Starts the ranks of one run.")
    parser.add_argument("ranks", type=int)
    parser.add_argument("spec", type=Path)
    parser.add_argument("record", type=Path)
    add_options(parser)
    given = parser.parse_args(arguments)
    return Asked(given.ranks, given.spec, given.record, read_nodes(given))


def main(arguments: list[str]) -> int:
    """The command; exit code 0 when rank 0 left a record."""
    os.environ.update(child_environment())  # the ranks' parent is this process
    asked = read_command(arguments)
    if asked.nodes is None:
        # Ranks meet on this machine alone; gloo and NCCL would look for an outer interface.
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # says the same in sixty lines
    try:
        start(asked)
    except ChildFailedError as error:
        rank, code = first_failure(error.failures)
        write_json(asked.record.parent / RANKS_FILE, {"rank": rank, "exit_code": code})
        return 1
    except SignalException as ended:
        return 128 + int(ended.sigval)
    except (RendezvousError, DistError) as error:
        sys.stderr.write(f"laptime.ranks: the nodes can't meet ({' '.join(str(error).split())[:200]}).\n")
        return ENDPOINT_LOST
    return 0


if __name__ == "__main__":
    # Without a teardown, which waits for every thread of torch's, with the device locked meanwhile.
    leave(main(sys.argv[1:]))
