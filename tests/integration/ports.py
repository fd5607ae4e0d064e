"""Ports for the servers and the ranks that tests start."""

from __future__ import annotations

import secrets
import socket

# The kernel gives connections and servers that ask for any port one from 32768 on.
_FIRST, _COUNT = 10_000, 10_000


def free_port() -> int:
    """A TCP port of the loopback interface that is free now, and that nobody gets by chance before it is used."""
    with socket.socket() as probe:
        while True:
            port = _FIRST + secrets.randbelow(_COUNT)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
