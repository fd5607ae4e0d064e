"""Image files to uint8 RGB, on all cores that this process may use."""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from laptime.errors import DataError, shorten
from laptime.processes import allowed_cores, die_with_parent

Images = NDArray[np.uint8]
Size = tuple[int, int]

_BLOCK = 512
# Starting a process costs as much as decoding about this many small images.
_ALONE = 4 * _BLOCK


class MixedSizesError(Exception):
    """An image of another size than the first one's."""


@dataclass(frozen=True)
class Shape:
    """What every image becomes.

    Attributes:
        size: (height, width).
        resize: whether images of another size are resized, or are the end of it (MixedSizesError).
    """

    size: Size
    resize: bool


def first_shape(path: Path) -> Shape:
    """The size of one image, for all of them to be compared with."""
    height, width = read_image(path).shape[:2]
    return Shape((height, width), resize=False)


def decode_all(root: Path, names: Sequence[str], shape: Shape) -> Iterator[Images]:
    """Decodes images in order, in blocks [B, H, W, 3].

    Raises:
        DataError: an image is unreadable, cut off or a decompression bomb; it is named.
        MixedSizesError: an image is of another size and the shape says not to resize.
    """
    blocks = [[str(root / n) for n in names[i : i + _BLOCK]] for i in range(0, len(names), _BLOCK)]
    cores = min(allowed_cores(), 8)
    if cores == 1 or len(names) <= _ALONE:
        for block in blocks:
            yield decode_block(block, shape)
        return
    # Spawned: a fork of a process that has threads (torch, boto3) may never come back.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, context, _start_worker) as pool:
        try:
            yield from _in_order(lambda block: pool.submit(decode_block, block, shape), blocks, 3 * cores)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _in_order(submit: Callable[[list[str]], Future[Images]], blocks: list[list[str]], ahead: int) -> Iterator[Images]:
    # Few blocks ahead of the writer, so that memory does not grow with the data.
    waiting: list[Future[Images]] = []
    for block in blocks:
        waiting.append(submit(block))
        if len(waiting) >= ahead:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def _start_worker() -> None:
    die_with_parent()
    # Ctrl-C reaches the whole group; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def decode_block(paths: list[str], shape: Shape) -> Images:
    """Decodes some images: uint8 [B, H, W, 3]."""
    out = np.empty((len(paths), *shape.size, 3), dtype=np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for i, path in enumerate(paths):
            out[i] = _fit(_load(path), shape)
    return out


def read_image(path: Path) -> Images:
    """Decodes one image at its own size: uint8 [H, W, 3]."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return np.asarray(_load(str(path)))


def _fit(image: Image.Image, shape: Shape) -> Images:
    if (image.height, image.width) != shape.size:
        if not shape.resize:
            raise MixedSizesError
        image = image.resize((shape.size[1], shape.size[0]), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(image)


def _load(path: str) -> Image.Image:
    try:
        with Image.open(path) as image:
            return _rgb(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(
            f"the image {path} has more pixels than is safe to decode ({error}): make it smaller or remove it."
        ) from error
    except Exception as error:  # decoders of damaged files raise anything: OSError, SyntaxError, struct.error, ...
        raise DataError(
            f"the image {path} is unreadable or cut off ({shorten(str(error))}): replace it or remove it."
        ) from error


def _rgb(image: Image.Image) -> Image.Image:
    if "exif" in image.info:
        image = ImageOps.exif_transpose(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode.startswith("I"):
        # 16 bits: Pillow's own conversion clips at 255 instead of scaling.
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray(np.clip(values // 257, 0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        # What lies below transparent pixels is arbitrary; white is what viewers show.
        above = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", above.size, "white"), above).convert("RGB")
    return image.convert("RGB")
