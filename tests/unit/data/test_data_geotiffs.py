"""Which TIFFs of 16 bits are measured values, and which are pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from data_samples import measured

from laptime.data.decode import first_shape, read_image
from laptime.data.fetch import fetch
from laptime.data.tensors import open_tensors
from laptime.errors import DataError

# A pixel's size, as GeoTIFFs tell it.
_PLACED = {"extratags": [(33550, "d", 3, (10.0, 10.0, 0.0), True)]}


@pytest.mark.parametrize(
    ("bands", "form"), [(1, "minisblack"), (3, "minisblack"), (3, "rgb"), (4, "minisblack"), (4, "rgb")]
)
def test_few_bands_of_a_geotiff_are_no_picture(tmp_path: Path, home: Path, bands: int, form: str) -> None:
    for i in range(10):
        path = tmp_path / f"few/{'ab'[i % 2]}/{i}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = measured(i, bands) if bands > 1 else measured(i, 1)[:, :, 0]
        tifffile.imwrite(path, values, photometric=form, planarconfig="contig" if bands > 1 else None, **_PLACED)
    place = str(tmp_path / "few")
    if bands < 4:
        with pytest.raises(DataError, match=rf"\.tif has {bands} band\(s\) and the bands 4,3,2 are asked for"):
            fetch("eurosat", place, home)
    chosen = fetch("eurosat", f"{place}#bands=1", home)
    assert open_tensors(chosen).train.images.dtype == torch.int16


@pytest.mark.parametrize("form", ["a page each", "a page each, placed", "one moment"])
def test_bands_that_were_written_one_by_one_are_one_image(tmp_path: Path, form: str) -> None:
    values, path = measured(1, 13), tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as tif:
        if form == "one moment":
            tif.write(values[None], photometric="minisblack", planarconfig="contig")
        for plane in values.transpose(2, 0, 1) if form != "one moment" else ():
            tif.write(plane, photometric="minisblack", **(_PLACED if "placed" in form else {}))
    assert first_shape(path).bands == (4, 3, 2)
    assert np.array_equal(read_image(path, (13, 4)), values[:, :, [12, 3]].clip(0, 4000))


@pytest.mark.parametrize("said", [{}, {"metadata": None}])
def test_a_square_image_whose_rows_became_pages_is_one_image(tmp_path: Path, said: dict[str, None]) -> None:
    values, path = np.random.default_rng(0).integers(0, 4000, (64, 64, 13), dtype=np.uint16), tmp_path / "a.tif"
    tifffile.imwrite(path, values, photometric="minisblack", **said)
    with tifffile.TiffFile(path) as tif:
        assert len(tif.pages) == 64
    assert first_shape(path).size == (64, 64)
    assert np.array_equal(read_image(path, (13, 4)), values[:, :, [12, 3]])


@pytest.mark.parametrize("form", ["as many bands as rows", "ImageJ's channels", "planes"])
def test_narrow_images_of_many_bands_stay_so(tmp_path: Path, form: str) -> None:
    shape = (40, 40, 32) if form == "as many bands as rows" else (40, 40, 8)
    values, path = np.random.default_rng(0).integers(0, 4000, shape, dtype=np.uint16), tmp_path / "a.tif"
    said = {"planes": {"planarconfig": "separate"}, "ImageJ's channels": {"imagej": True, "metadata": {"axes": "CYX"}}}
    tifffile.imwrite(path, values, photometric="minisblack", **said.get(form, {}))
    assert np.array_equal(read_image(path, (40, 2)), values.transpose(1, 2, 0)[:, :, [39, 1]])


def test_pictures_of_16_bits_are_told_to_be_taken_for_such(tmp_path: Path, home: Path) -> None:
    for i in range(10):
        path = tmp_path / f"deep/{'ab'[i % 2]}/{i}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, measured(i, 3) * 10, photometric="rgb")
    found = fetch("eurosat", str(tmp_path / "deep"), home)
    assert "pictures in which 65535 is white" in found.notice
    assert open_tensors(found).train.images.dtype == torch.uint8
