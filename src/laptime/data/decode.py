"""Image files to uint8 RGB, or to bands of 16 bits, on all cores that this process may use."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from laptime.data.bands import DEFAULT_BANDS, is_tiff, read_bands
from laptime.data.choices import BANDS, Size
from laptime.data.decode_pool import in_blocks, in_pool
from laptime.errors import DataError, shorten

Images = NDArray[np.uint8] | NDArray[np.int16]

# Of all that Pillow knows, what is an image in a folder of images. Others run a program on the file (EPS) or lead to
# more files.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")

# The tag, and what undoes each of its values (Exif 2.32, 4.6.4): not by Pillow's exif_transpose, which writes the rest
# of the block anew and fails where that is broken.
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Those that make height of width.
_ASIDE = (5, 6, 7, 8)

# Tags of TIFF (6.0) and of GeoTIFF (OGC 19-008r4): the sizes of a pixel, a point's place, the keys of what they mean.
_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262
_GEOTIFF = (33550, 33922, 34735)


class MixedSizesError(Exception):
    """An image of another size than the first one's."""


@dataclass(frozen=True)
class Shape:
    """What every image becomes.

    Attributes:
        size: (height, width).
        resize: whether images of another size are resized, or are the end of it (MixedSizesError).
        bands: those of multi-spectral images; none for RGB.
    """

    size: Size
    resize: bool
    bands: tuple[int, ...] = ()

    @property
    def channels(self) -> int:
        """Values of a pixel."""
        return len(self.bands) or 3


def first_shape(path: Path, bands: tuple[int, ...] = ()) -> Shape:
    """The size of one image, for all of them to be compared with.

    A multi-spectral TIFF is known by itself: of it the default bands are read.
    """
    chosen = bands or (DEFAULT_BANDS if _is_multispectral(path) else ())
    height, width = read_image(path, chosen).shape[:2]
    return Shape((height, width), resize=False, bands=chosen)


def _is_multispectral(path: Path) -> bool:
    """Whether a TIFF has more values than a picture: Pillow does not know their form, or each band is a page.

    Values of 16 bits that have a place on Earth are measured ones, however few bands there are. A damaged file is for
    whoever decodes it.
    """
    if not is_tiff(path):
        return False
    try:
        with Image.open(path, formats=_FORMATS) as image:
            return (_is_deep(image) and _has_place(image)) or _is_stack(path)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return False  # Pillow knows the form and refuses the size, as whoever decodes it will
    except OSError:
        return True


def is_deep_picture(path: Path) -> bool:
    """Whether an image is a TIFF of 16 bits that is taken for a picture."""
    if not is_tiff(path) or _is_multispectral(path):
        return False
    with Image.open(path, formats=_FORMATS) as image:
        return _is_deep(image)


def _is_deep(image: Image.Image) -> bool:
    return bool(max(_tags(image).get(_BITS_PER_SAMPLE, (8,))) > 8)


def _has_place(image: Image.Image) -> bool:
    return any(tag in _tags(image) for tag in _GEOTIFF)


def _tags(image: Image.Image) -> Mapping[int, Any]:
    return image.tag_v2 if isinstance(image, TiffImageFile) else {}


def _is_stack(path: Path | str) -> bool:
    """Whether bands of 16 bits are pages, of which Pillow shows the first; an overview or a mask makes no stack."""
    try:
        with Image.open(path, formats=_FORMATS) as image:
            first = (image.mode, image.size)
            if not image.mode.startswith("I;16") or getattr(image, "n_frames", 1) < max(DEFAULT_BANDS):
                return False
            image.seek(1)
            return (image.mode, image.size) == first
    except Exception:  # later pages may be anything or cut off: the first is a picture all the same
        return False


def decode_all(root: Path, names: Sequence[str], shape: Shape) -> Iterator[Images]:
    """Decodes images in order, in blocks [B, H, W, channels].

    Raises:
        DataError: an image is unreadable, cut off or a decompression bomb; it is named.
        MixedSizesError: an image is of another size and the shape says not to resize.
    """
    nbytes = shape.size[0] * shape.size[1] * shape.channels * (2 if shape.bands else 1)
    yield from in_pool(partial(decode_block, shape=shape), in_blocks([str(root / name) for name in names], nbytes))


def sizes_of(paths: Sequence[Path]) -> Generator[Size]:
    """Height and width of images in order, each decoded whole, so that one that can't be is told by its name."""
    for block in in_pool(_sizes, in_blocks(list(map(str, paths)))):
        yield from block


def _sizes(paths: list[str]) -> list[Size]:
    return [_size_of(read_image(Path(path))) for path in paths]


def _size_of(image: Images) -> Size:
    height, width = image.shape[:2]
    return height, width


def decode_block(paths: list[str], shape: Shape) -> Images:
    """Decodes some images: uint8 [B, H, W, 3], or int16 [B, H, W, bands]."""
    out = np.empty((len(paths), *shape.size, shape.channels), dtype=np.int16 if shape.bands else np.uint8)
    with _no_bombs():
        for i, path in enumerate(paths):
            out[i] = _fit_bands(path, shape) if shape.bands else _fit(_load(path), shape)
    return out


def read_image(path: Path, bands: tuple[int, ...] = ()) -> Images:
    """Decodes one image at its own size: uint8 [H, W, 3], or int16 [H, W, bands]."""
    if bands:
        return read_bands(path, bands)
    with _no_bombs():
        return np.asarray(_load(str(path)))


def size_said(path: Path) -> Size:
    """Height and width of an image, of a JPEG by its first bytes alone; raises DataError."""
    with suppress(Exception), Image.open(path, formats=_FORMATS) as image, _no_bombs():
        if image.format == "JPEG":  # of other forms a turn may stand behind the pixels
            aside = "exif" in image.info and image.getexif().get(_ORIENTATION) in _ASIDE
            return (image.width, image.height) if aside else (image.height, image.width)
    return _size_of(read_image(path))


@contextmanager
def _no_bombs() -> Iterator[None]:
    """Within it Pillow refuses bombs, and is silent of EXIF blocks that it can't read whole: the image is."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
        yield


def _fit_bands(path: str, shape: Shape) -> Images:
    """Measured values are not resized: between two pixels nothing was measured."""
    values = read_bands(path, shape.bands)
    if values.shape[:2] != shape.size:
        height, width = shape.size
        raise DataError(
            f"the image {path} is {values.shape[1]}x{values.shape[0]} and the first one {width}x{height}: "
            "multi-spectral images must be of one size, so resample it or remove it."
        )
    return values


def _fit(image: Image.Image, shape: Shape) -> Images:
    if (image.height, image.width) != shape.size:
        if not shape.resize:
            raise MixedSizesError
        image = image.resize((shape.size[1], shape.size[0]), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(image)


def _load(path: str) -> Image.Image:
    try:
        with Image.open(path, formats=_FORMATS) as image:
            if image.mode.startswith("I;16") and _is_stack(path):
                raise ValueError("each of its bands is a page")
            return _rgb(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(
            f"the image {path} has more pixels than is safe to decode ({error}): make it smaller or remove it."
        ) from error
    except Exception as error:  # decoders of damaged files raise anything: OSError, SyntaxError, struct.error, ...
        if _is_whole_tiff(path):
            raise DataError(
                f"the image {path} holds bands, and no picture as is expected here: remove it, or, in a folder of "
                f"classes, choose bands behind the place of the data, such as {BANDS}4,3,2."
            ) from error
        raise DataError(
            f"the image {path} is unreadable or cut off ({shorten(str(error))}): replace it or remove it."
        ) from error


def _is_whole_tiff(path: str) -> bool:
    """Whether tifffile reads what Pillow can't."""
    try:
        return is_tiff(Path(path)) and read_bands(path, (1,)).size > 0
    except DataError:
        return False


def _upright(image: Image.Image) -> Image.Image:
    """An image as its EXIF block turns it; a block that can't be read turns nothing, as in viewers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what else is wrong in the block is nobody's business here
            said = image.getexif().get(_ORIENTATION)
        turn = _TURNS.get(said) if isinstance(said, int) else None
    except Exception:  # of damaged blocks anything: SyntaxError, struct.error, KeyError, ...
        turn = None
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    if "exif" in image.info:
        image = _upright(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode.startswith("I"):
        # 16 bits: Pillow's own conversion clips at 255 instead of scaling.
        if max(_tags(image).get(_BITS_PER_SAMPLE, (16,))) > 16:
            raise ValueError("whole numbers of 32 bits have no known range")
        values = np.asarray(image).astype(np.int64)
        if _tags(image).get(_PHOTOMETRIC) == 0:  # white is 0; of 8 bits Pillow turns it round itself
            values = 65535 - values
        return Image.fromarray(np.clip(values // 257, 0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        # What lies below transparent pixels is arbitrary; white is what viewers show.
        above = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", above.size, "white"), above).convert("RGB")
    return image.convert("RGB")
