"""Small images that the tests of data make, and looks at what they left."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image
from tests.serving import Quiet, serving

SIDE = 8  # of tiles with bands
MakeFolder = Callable[..., Path]


def write_image(path: Path, seed: int, size: tuple[int, int] = (32, 32)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def left_over(home: Path) -> list[Path]:
    """What stands in the data folder beside whole stores and the index."""
    root = home / "data"
    return [p for p in root.iterdir() if p.name != "index" and len(p.name) != 64] if root.is_dir() else []


def stores(home: Path) -> list[Path]:
    root = home / "data"
    return [p for p in root.iterdir() if len(p.name) == 64] if root.is_dir() else []


def web(folder: Path, status: int = 0, length: str = "", port: int = 0) -> AbstractContextManager[str]:
    """A web server of a folder on loopback; with a status it answers everything with that; HEAD may tell a length."""

    class Handler(Quiet, SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def do_GET(self) -> None:
            if status:
                self.send_error(status)
            else:
                super().do_GET()

        def do_HEAD(self) -> None:
            if status:
                self.send_error(status)
            elif length:
                self.give(b"", length=length)
            else:
                super().do_HEAD()

    return serving(Handler, port)


def nobody() -> str:
    """An address on loopback where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def measured(seed: int, bands: int = 13, side: int = SIDE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 6000, (side, side, bands), dtype=np.uint16)


def write_tif(path: Path, values: np.ndarray, **how: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(path, values, photometric="minisblack", **{"planarconfig": "contig", **how})
