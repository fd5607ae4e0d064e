"""Multi-spectral images: which bands are asked for, and how they come out of a GeoTIFF.

Bands are chosen behind the place of the data, `DIR#bands=4,3,2` (counted from 1, in the order of the file).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laptime.data.choices import BANDS as MARK
from laptime.errors import DataError, UsageError, shorten

# Red, green and blue of Sentinel-2 in the order in which EuroSAT's files hold the bands.
DEFAULT_BANDS = (4, 3, 2)
# Sentinel-2's digital numbers are 10,000 times the reflectance. Land seldom goes beyond 0.4, so that is taken as 1.
FULL_SCALE = 4000
# Values of all bands together, 1 GiB in memory: four bands of a whole tile of Sentinel-2 fit.
_MOST_VALUES = 2**29
_TIFF = (".tif", ".tiff")


def chosen_bands(text: str | None) -> tuple[int, ...]:
    """The bands that are asked for, none where they are not; raises UsageError for what is no number or twice there."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    bands = tuple(int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 6)
    if len(bands) != len(parts) or 0 in bands or len(set(bands)) != len(bands):
        raise UsageError(
            f"{shorten(text)!r} behind {MARK} names no bands: give different numbers from 1, separated by commas, "
            "such as #bands=4,3,2."
        )
    return bands


def in_words(bands: tuple[int, ...]) -> str:
    """What the user is told of the bands."""
    return f"bands {', '.join(map(str, bands))} of each image, as shares of {FULL_SCALE}, cut at 1." if bands else ""


def is_tiff(path: Path | str) -> bool:
    """Whether a file's name is that of a TIFF."""
    return str(path).lower().endswith(_TIFF)


def read_bands(path: Path | str, bands: tuple[int, ...]) -> NDArray[np.int16]:
    """Reads some bands of a GeoTIFF: int16 [H, W, bands], from 0 to FULL_SCALE.

    Signed, since all values fit and torch computes little with uint16.

    Raises:
        DataError: the file is unreadable, has too few bands or other values than whole ones of 16 bits; or tifffile is
            not installed.
    """
    values = _load(path)
    if max(bands) > values.shape[2]:
        asked = ",".join(map(str, bands))
        raise DataError(
            f"the image {path} has {values.shape[2]} band(s) and the bands {asked} are asked for: replace it, or "
            f"choose bands that it has behind the place of the data, such as {MARK}1."
        )
    chosen: NDArray[np.int16] = values[:, :, [band - 1 for band in bands]].clip(0, FULL_SCALE).astype(np.int16)
    return chosen


def _load(path: Path | str) -> NDArray[Any]:
    """All bands [H, W, bands], whatever their order in the file."""
    try:
        import tifffile
    except ImportError as error:
        raise DataError(
            f"the image {path} needs tifffile to be read: install laptime[eurosat], or give RGB images."
        ) from error
    # Each damaged tag would be a line on the user's terminal; the sentence below says enough.
    logging.getLogger("tifffile").setLevel(logging.CRITICAL + 1)
    try:
        with tifffile.TiffFile(path) as tif:
            parts = _alike(tif.series)
            size = sum(part.size for part in parts)
            if size > _MOST_VALUES:
                raise DataError(
                    f"the image {path} says that it holds {size} values, more than the {_MOST_VALUES} that are "
                    "safe to decode: cut it into tiles or remove it."
                )
            values, axes = np.asarray(parts[0].asarray()), parts[0].axes
            if len(parts) > 1:
                values = np.stack([np.asarray(part.asarray()) for part in parts])
    except DataError:
        raise
    except Exception as error:  # damaged files raise anything: ValueError, struct.error, zlib.error, ...
        raise DataError(f"the image {path} {_why_not(path, error)}") from error
    values = _last(values, axes)
    if values.ndim != 3 or values.dtype not in (np.dtype(np.uint16), np.dtype(np.int16)):
        raise DataError(
            f"the image {path} holds {values.dtype} values of shape {values.shape}, which is no image of bands with "
            "whole numbers of 16 bits: replace it or remove it; where all are so, write them anew as whole numbers, "
            "10,000 times the reflectance."
        )
    return values


def _last(values: NDArray[Any], axes: str) -> NDArray[Any]:
    """An image with its bands behind height and width, where it has no more axes than that."""
    while values.ndim > 3 and len(values) == 1:  # one moment, or one depth
        values = values[0]
    if values.ndim == 2:
        values = values[:, :, None]
    elif values.ndim == 3 and not (axes.endswith("YXS") or _rows_are_pages(values.shape, axes)):
        values = np.moveaxis(values, 0, -1)  # bands as planes, or as pages
    return values


def _rows_are_pages(shape: tuple[int, ...], axes: str) -> bool:
    """Whether a square image with its bands behind was written without a word that they are bands.

    tifffile then makes each row a page, as wide as there are bands: 64 pages of 64 x 13 pixels. Where the file itself
    says what its pages are (ImageJ's channels, planes), they are that.
    """
    pages, height, width = shape
    return axes in ("QYX", "IYX") and pages == height > 2 * width


def _alike(series: Sequence[Any]) -> list[Any]:
    """The first series of pages; where that is one plane, all that are like it, for each band may have been written by
    itself. An overview is smaller.
    """
    first = series[0]
    if len(first.shape) != 2:
        return [first]
    return [part for part in series if (part.shape, part.dtype) == (first.shape, first.dtype)]


def _why_not(path: Path | str, error: Exception) -> str:
    """What is wrong with an image that tifffile can't read, and the remedy."""
    said = shorten(str(error))
    if isinstance(error, ImportError) or "imagecodecs" in said:  # tifffile alone undoes Deflate and PackBits
        return f"is compressed in a way that needs more ({said}): pip install imagecodecs, or write it with Deflate."
    if not is_tiff(path):
        return (
            "is no TIFF, and bands are read of TIFFs alone: keep it apart from them, or leave out #bands= where "
            "pictures are meant."
        )
    return f"is unreadable or cut off ({said}): replace it or remove it."
