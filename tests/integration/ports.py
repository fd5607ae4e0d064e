"""Ports for the servers and the ranks that tests start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A TCP port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
