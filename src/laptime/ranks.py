"""Starts the ranks of one run on this machine through torch's elastic launcher, and names the one that died.

    python -m laptime.ranks RANKS SPEC.json RECORD.json

Each rank is a `laptime.worker`. Rank 0 speaks on standard output, the others in logs of their own beside the record.
Where a rank dies, all others are ended and `ranks.json` says which it was.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from laptime.processes import PEER_LOST, RANKS_FILE, child_environment, die_with_parent
from laptime.records import write_json

_LOOPBACK = "127.0.0.1"


def start(ranks: int, spec: Path, record: Path) -> None:
    """Runs the ranks to their end; raises ChildFailedError where one failed. Nothing is restarted."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=f"laptime-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint=f"{_LOOPBACK}:0",  # port 0: the store takes a free one
        local_addr=_LOOPBACK,
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
    )
    elastic_launch(config, sys.executable)("-m", "laptime.worker", str(spec), str(record))


def first_failure(failures: dict[int, ProcessFailure]) -> tuple[int, int]:
    """Rank and exit code of the one that died of itself: not of the launcher's signal, nor of another one's end."""
    consequences = (PEER_LOST, -signal.SIGTERM)
    own = {rank: f for rank, f in failures.items() if f.exitcode not in consequences} or failures
    rank = min(own, key=lambda r: (own[r].timestamp, r))
    return rank, own[rank].exitcode


def main(arguments: list[str]) -> int:
    """The command; exit code 0 when rank 0 left a record."""
    die_with_parent()
    os.environ.update(child_environment())  # the ranks' parent is this process
    # Ranks meet on this machine alone; gloo and NCCL would look for an outer interface.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # says the same in sixty lines
    count, spec, record = int(arguments[0]), Path(arguments[1]), Path(arguments[2])
    try:
        start(count, spec, record)
    except ChildFailedError as error:
        rank, code = first_failure(error.failures)
        write_json(record.parent / RANKS_FILE, {"rank": rank, "exit_code": code})
        return 1
    except SignalException as ended:
        return 128 + int(ended.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
