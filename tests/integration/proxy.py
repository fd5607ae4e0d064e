"""A TCP proxy on loopback that counts, holds and cuts what passes: a line that breaks when a test wants it to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_BLOCK = 1 << 16
_REFUSAL = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
_TOO_LARGE = _REFUSAL.replace(b"500 Internal Server Error", b"413 Request Entity Too Large")


@dataclass
class Proxy:
    """A line to a server.

    Attributes:
        calls: connections that were made, those that were broken included.
        up, down: bytes that passed to the server and from it.
        hold_up, hold_down: bytes after which nothing passes any more, with the connections left open.
        cut_down: bytes from the server after which all connections break, once.
        away: whether new connections are broken at once.
        failing: whether new connections are answered with HTTP's 500, whatever they ask.
        block_s: seconds that each block waits on its way.
        swallowing: whether PUT is answered here, with a page, as by the log-in of a company.
        holding: whether PUT is taken and never answered, as where what is behind a server is full.
        puts, puts_lost: PUTs that came; how many of the next ones break their connection.
        most_up: bytes to the server that a connection may carry; one with more is answered with HTTP's 413.
    """

    target: tuple[str, int]
    calls: int = 0
    up: int = 0
    down: int = 0
    hold_up: int | None = None
    hold_down: int | None = None
    cut_down: int | None = None
    away: bool = False
    failing: bool = False
    block_s: float = 0.0
    swallowing: bool = False
    holding: bool = False
    puts: int = 0
    puts_lost: int = 0
    most_up: int | None = None
    held: threading.Event = field(default_factory=threading.Event)
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self) -> None:
        """Breaks what is open and lets everything pass from now on, counted from nothing."""
        self.cut()
        self.up = self.down = 0
        self.hold_up = self.hold_down = self.cut_down = None
        self.away = self.failing = self.swallowing = self.holding = False
        self.block_s = 0.0
        self.most_up = None
        self.held.clear()

    def cut(self) -> None:
        """Breaks all connections."""
        with self._lock:
            broken, self._open = self._open, []
        for connection in broken:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def serve(self, listener: socket.socket) -> None:
        """Takes connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.calls += 1
                server = self._answer(client)
                if server is None:
                    client.close()
                    continue
                with self._lock:
                    self._open += [client, server]
                threading.Thread(target=self._join, args=(client, server), daemon=True).start()

    def _answer(self, client: socket.socket) -> socket.socket | None:
        """The server's end of a connection; None where the client is to be let down."""
        if self.away:
            return None
        with contextlib.suppress(OSError):
            if not self.failing:
                return socket.create_connection(self.target)
            client.settimeout(1.0)
            client.recv(_BLOCK)
            client.sendall(_REFUSAL)
        return None

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        stays = threading.Event()
        with client, server:
            up = threading.Thread(target=self._pump, args=(client, server, True, stays), daemon=True)
            up.start()
            self._pump(server, client, False, stays)
            up.join()

    def _pump(self, source: socket.socket, to: socket.socket, upwards: bool, stays: threading.Event) -> None:
        with contextlib.suppress(OSError):
            whole = 0
            while block := source.recv(_BLOCK):
                whole += len(block)
                if upwards and self.most_up is not None and whole > self.most_up:
                    self._turn_away(source, _TOO_LARGE)
                    break
                if upwards and block.startswith(b"PUT ") and self._keeps(source):
                    stays.set()
                    break
                if not self._passes(len(block), upwards):
                    break
                if self.block_s:
                    time.sleep(self.block_s)
                to.sendall(block)
            else:
                while stays.is_set() and self.holding:  # the server has left: nothing has come for some seconds
                    time.sleep(0.05)
                to.shutdown(socket.SHUT_WR)

    def _keeps(self, client: socket.socket) -> bool:
        """Whether a PUT ends here."""
        self.puts += 1
        if self.swallowing:
            self._turn_away(client, _PAGE)
        if self.puts_lost:
            self.puts_lost -= 1
            self.cut()
            return True
        return self.swallowing or self.holding

    def _turn_away(self, client: socket.socket, answer: bytes) -> None:
        """Answers in the server's place, and reads on: a client that still sends would not hear it."""
        client.sendall(answer)
        client.settimeout(1.0)
        while client.recv(_BLOCK):
            pass

    def _passes(self, count: int, upwards: bool) -> bool:
        """Counts a block; False where it is held or the line is cut."""
        with self._lock:
            limit = self.hold_up if upwards else self.hold_down
            if limit is not None and (self.up if upwards else self.down) + count > limit:
                self.held.set()
                return False
            if upwards:
                self.up += count
            else:
                self.down += count
            broken = self.cut_down is not None and self.down > self.cut_down
            if broken:
                self.cut_down = None
        if broken:
            self.cut()
        return not broken


@contextmanager
def a_proxy(endpoint: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy to a server, with its own address."""
    parts = urlsplit(endpoint)
    proxy = Proxy((str(parts.hostname), int(parts.port or 80)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
        try:
            yield proxy, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            proxy.holding = False
            proxy.cut()
