"""The machines of one run: as words of a command line, for who writes it and for who reads it."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

RENDEZVOUS_PORT = 29400
_RESTARTS, _LAST_CALL_S, _PATIENCE_S = 3, 30, 60


@dataclass(frozen=True)
class Nodes:
    """What a launcher of ranks has to know to meet those of other machines.

    Attributes:
        least, most: machines that are enough to train, and that are waited for.
        endpoint: host:port where they meet; the launcher of node 0 serves it.
        run: the name of what they train together, the same on all.
        index: this machine, from 0.
        address: under which the others reach this one; None for its name.
        restarts: how often lost ranks are started anew.
        last_call_s: how long further machines are waited for once the least number is there.
        patience_s: how long the endpoint may not answer.
    """

    least: int
    most: int
    endpoint: str
    run: str
    index: int = 0
    address: str | None = None
    restarts: int = _RESTARTS
    last_call_s: int = _LAST_CALL_S
    patience_s: int = _PATIENCE_S

    def words(self) -> list[str]:
        """As options of a command line."""
        found = ["--nodes", f"{self.least}:{self.most}", "--node", str(self.index), "--endpoint", self.endpoint]
        found += ["--run", self.run, "--restarts", str(self.restarts), "--last-call", str(self.last_call_s)]
        found += ["--patience", str(self.patience_s)]
        return [*found, *(["--address", self.address] if self.address else [])]


def read_range(text: str) -> tuple[int, int]:
    """Reads `MIN:MAX`, or one number for both; raises ValueError for what is none."""
    low, _, high = text.partition(":")
    if low.isdecimal() and (high or low).isdecimal():
        least, most = int(low), int(high or low)
        if 1 <= least <= most:
            return least, most
    raise ValueError("give MIN:MAX, two numbers from 1 on of which the second is not smaller, such as 1:2")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that `words` writes and `read_nodes` reads; without --endpoint there is this machine alone.

    A pod of an Indexed Job finds its index in the environment.
    """
    index = os.environ.get("JOB_COMPLETION_INDEX", "0")
    parser.add_argument("--nodes", type=read_range, default=(1, 1), metavar="MIN:MAX")
    parser.add_argument("--node", type=int, default=index, metavar="INDEX")
    parser.add_argument("--endpoint", metavar="HOST:PORT")
    parser.add_argument("--run", default="laptime", metavar="ID")
    parser.add_argument("--address", metavar="HOST")
    parser.add_argument("--restarts", type=int, default=_RESTARTS)
    parser.add_argument("--last-call", type=int, default=_LAST_CALL_S, metavar="SECONDS")
    parser.add_argument("--patience", type=int, default=_PATIENCE_S, metavar="SECONDS")


def read_nodes(given: argparse.Namespace) -> Nodes | None:
    """The machines that parsed options name; None for this one alone."""
    if given.endpoint is None:
        return None
    least, most = given.nodes
    return Nodes(
        least=least,
        most=most,
        endpoint=given.endpoint,
        run=given.run,
        index=given.node,
        address=given.address,
        restarts=given.restarts,
        last_call_s=given.last_call,
        patience_s=given.patience,
    )
