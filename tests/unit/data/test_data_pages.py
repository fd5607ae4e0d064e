"""Pictures of 16 bits whose files have more pages: an overview, something else, or a second page that is cut off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from laptime.data.decode import first_shape, read_image
from laptime.errors import DataError


@pytest.mark.parametrize("second", ["overview", "thumbnail", "complex", "cut off"])
def test_a_picture_with_another_page_stays_a_picture(tmp_path: Path, second: str) -> None:
    path = tmp_path / "a.tif"
    grey = np.random.default_rng(0).integers(0, 65535, (64, 64), dtype=np.uint16)
    with tifffile.TiffWriter(path) as tif:
        tif.write(grey, photometric="minisblack")
        for _ in range(4):
            if second == "overview":
                tif.write(grey[::2, ::2], photometric="minisblack", subfiletype=1)
            elif second == "thumbnail":
                tif.write(np.zeros((16, 16, 3), np.uint8), photometric="rgb", subfiletype=1)
            elif second == "complex":
                tif.write(np.zeros((64, 64), np.complex64))
            else:
                tif.write(grey, photometric="minisblack", metadata=None)
    if second == "cut off":
        path.write_bytes(path.read_bytes()[:-9000])
    try:
        found = first_shape(path)
    except DataError as error:  # where libtiff looks at all pages before it shows the first
        if second != "cut off" or "a.tif is unreadable or cut off" not in str(error):
            raise
        return
    assert (found.size, found.bands) == ((64, 64), ())
    assert np.array_equal(read_image(path)[:, :, 0], np.clip(grey // 257, 0, 255))
