"""Web servers on loopback, which say nothing of what they are asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Quiet(BaseHTTPRequestHandler):
    """A handler that leaves the tests' output alone."""

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def give(self, body: bytes, status: int = 200, length: object = None, kind: str = "text/plain") -> None:
        """Answers with a body, of which it says another length where one is given."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Runs a server meanwhile; its address."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
