"""Multi-spectral images: which bands of a GeoTIFF end in the store, and every way in which one can be wrong."""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from data_samples import SIDE, left_over, measured, nobody, web, write_image, write_tif
from PIL import Image
from torchvision.datasets import EuroSAT

from laptime.catalogue import find_workload
from laptime.data import eurosat
from laptime.data.bands import read_bands
from laptime.data.fetch import fetch, verify
from laptime.data.listing import Scan, arrange
from laptime.data.meta import read_meta
from laptime.data.mirror import LATEST_SCHEMA
from laptime.data.sources import Job, quiet
from laptime.data.store import Store
from laptime.data.synthetic import Synthetic
from laptime.data.tensors import open_tensors
from laptime.errors import DataError, UnreachableError, UsageError


def write_lzw(path: Path) -> None:
    """A tile that says to be compressed by LZW."""
    write_tif(path, measured(1))
    with tifffile.TiffFile(path, mode="r+") as tif:
        tif.pages[0].tags["Compression"].overwrite(5)


@pytest.fixture
def tiles(tmp_path: Path) -> Path:
    """Ten tiles of 13 bands in each of two classes."""
    root = tmp_path / "tif"
    for c, klass in enumerate(("Forest", "River")):
        for i in range(10):
            write_tif(root / klass / f"{klass}_{i}.tif", measured(100 * c + i))
    return root


def test_the_default_bands_in_their_order(tiles: Path, home: Path) -> None:
    data = fetch("eurosat", str(tiles), home)
    assert (data.kind, data.classes, data.train_count, data.test_count) == ("folder", ("Forest", "River"), 16, 4)
    assert "bands 4, 3, 2 of each image" in data.notice
    meta, opened = read_meta(Path(data.path)), open_tensors(data)
    assert (meta.schema_, meta.bands, meta.scale) == ("laptime.data/2", (4, 3, 2), 4000)
    assert opened.train.images.dtype == torch.int16
    listing = sorted(p for p in (tiles / "Forest").iterdir())
    known = {np.clip(tifffile.imread(p)[:, :, [3, 2, 1]], 0, 4000).astype(np.int16).tobytes() for p in listing}
    forest = opened.train.images[opened.train.labels == 0].numpy()
    assert {image.tobytes() for image in forest} < known
    scaled = opened.train.images.double() / 4000
    assert opened.mean == pytest.approx(scaled.mean((0, 1, 2)).tolist())
    assert opened.std == pytest.approx(scaled.std((0, 1, 2), correction=0).tolist())
    assert verify("eurosat", str(tiles), home) == data


def test_bands_are_not_resized(tiles: Path, home: Path) -> None:
    with pytest.raises(DataError, match=r"holds bands of 16 bits, which are never resized: leave out #size="):
        fetch("eurosat", f"{tiles}#size=64", home)


def test_any_bands_are_data_of_their_own(tiles: Path, home: Path) -> None:
    digests = set()
    for chosen, count in (("", 3), ("#bands=2,3,4", 3), ("#bands=8", 1), ("#bands=1,2,3,4,5,6,7,8,9,10,11,12,13", 13)):
        data = fetch("eurosat", f"{tiles}{chosen}", home)
        assert open_tensors(data).train.images.shape == (16, SIDE, SIDE, count)
        assert data.asked == f"{tiles}{chosen}"
        digests.add(data.digest)
    assert len(digests) == 4
    store = fetch("eurosat", f"{tiles}#bands=8", home).path
    assert fetch("eurosat", store, home).digest == fetch("eurosat", f"{store}#bands=8", home).digest
    with pytest.raises(UsageError, match=r"does not hold the bands 2,1: give the images"):
        fetch("eurosat", f"{store}#bands=2,1", home)


def test_bands_as_planes_and_as_pages(tmp_path: Path) -> None:
    values = measured(1)
    write_tif(tmp_path / "planes.tif", np.moveaxis(values, -1, 0), planarconfig="separate")
    tifffile.imwrite(tmp_path / "pages.tif", np.moveaxis(values, -1, 0), photometric="minisblack")
    write_tif(tmp_path / "whole.tif", values)
    found = [read_bands(tmp_path / f"{name}.tif", (13, 1)) for name in ("whole", "planes", "pages")]
    assert all(np.array_equal(f, found[0]) for f in found)
    assert np.array_equal(found[0], np.minimum(values[:, :, [12, 0]], 4000))
    write_tif(tmp_path / "signed.tif", values.astype(np.int16) - 3000)
    assert read_bands(tmp_path / "signed.tif", (1,)).min() == 0


def test_bands_as_pages_are_known_without_being_asked_for(tiles: Path, home: Path) -> None:
    whole = open_tensors(fetch("eurosat", str(tiles), home)).train.images
    for path in tiles.rglob("*.tif"):
        tifffile.imwrite(path, np.moveaxis(tifffile.imread(path), -1, 0), photometric="minisblack")
    assert torch.equal(open_tensors(fetch("eurosat", str(tiles), home)).train.images, whole)


def test_a_multispectral_tile_among_pictures_is_named_as_one(tmp_path: Path, home: Path) -> None:
    [write_image(tmp_path / f"mixed/{'ab'[i % 2]}/{i}.png", i) for i in range(6)]
    for values in (np.moveaxis(measured(1), -1, 0), measured(1)):
        tifffile.imwrite(tmp_path / "mixed/b/odd.tif", values, photometric="minisblack")
        with pytest.raises(
            DataError, match=r"odd\.tif holds bands, and no picture as is expected here: .* #bands=4,3,2"
        ):
            fetch("eurosat", str(tmp_path / "mixed"), home)


@pytest.mark.parametrize("text", ["", "4,x", "0", "4,4", "4;3", "-1", "4,,2", "999999"])
def test_bands_that_are_none(text: str, tiles: Path, home: Path) -> None:
    with pytest.raises(UsageError, match=r"behind #bands= names no bands: give different numbers from 1"):
        fetch("eurosat", f"{tiles}#bands={text}", home)


def test_a_wrong_tile_is_named(tiles: Path, home: Path) -> None:
    bad = tiles / "River/River_3.tif"
    good = bad.read_bytes()
    cases = {
        rf"{bad} has 3 band\(s\) and the bands 4,3,2 are asked for": lambda: write_tif(bad, measured(1, 3)),
        rf"{bad} is unreadable or cut off": lambda: bad.write_bytes(good[: len(good) // 2]),
        rf"{bad} is unreadable or cut off \(": lambda: bad.write_bytes(b"II*\0"),
        rf"{bad} is 4x4 and the first one 8x8: .* resample it": lambda: write_tif(bad, measured(1, side=4)),
        rf"{bad} is compressed in a way that needs more \(.*: pip install imagecodecs, or": lambda: write_lzw(bad),
        rf"{bad} holds float32 values": lambda: write_tif(bad, measured(1).astype(np.float32)),
        rf"{bad} holds uint8 values": lambda: write_tif(bad, measured(1).astype(np.uint8)),
    }
    for message, spoil in cases.items():
        spoil()
        with pytest.raises(DataError, match=message):
            fetch("eurosat", str(tiles), home)
        assert left_over(home) == []
    bad.unlink()
    write_image(tiles / "River/photo.png", 1, (SIDE, SIDE))
    with pytest.raises(DataError, match=r"photo\.png is no TIFF, and bands are read of TIFFs alone"):
        fetch("eurosat", str(tiles), home)


def test_bands_of_ordinary_images_are_refused(tmp_path: Path, home: Path) -> None:
    for klass in "ab":
        for i in range(3):
            write_image(tmp_path / f"rgb/{klass}/{i}.png", i)
    with pytest.raises(DataError, match=r"\d\.png is no TIFF, and bands are read of TIFFs alone: .* leave out #bands="):
        fetch("eurosat", f"{tmp_path}/rgb#bands=1", home)
    with pytest.raises(UsageError, match="stand-in has three channels"):
        fetch("eurosat", "synthetic#bands=1", home)


def test_without_tifffile_one_sentence(tiles: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(DataError, match=r"needs tifffile to be read: install laptime\[eurosat\]"):
        fetch("eurosat", str(tiles), home)


def test_images_of_bytes_stay_in_the_older_schema(tmp_path: Path, home: Path) -> None:
    modes = ("L", "RGBA", "P", "I;16", "RGB", "CMYK")
    for klass in "ab":
        for i, mode in enumerate(modes):
            pixels = np.random.default_rng(i).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
            image = Image.fromarray(pixels)
            path = tmp_path / f"mixed/{klass}/{i}.{'jpg' if mode == 'CMYK' else 'png'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if mode == "I;16":
                image = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257)
            (image if mode == "I;16" else image.convert(mode)).save(path)
    data = fetch("eurosat", str(tmp_path / "mixed"), home)
    meta = json.loads((Path(data.path) / "meta.json").read_text())
    assert meta["schema"] == "laptime.data/1"
    assert not {"scale", "bands"} & meta.keys()
    assert open_tensors(data).train.images.dtype == torch.uint8


def test_a_meta_that_does_not_hang_together(tiles: Path, home: Path) -> None:
    path = Path(fetch("eurosat", str(tiles), home).path) / "meta.json"
    meta = json.loads(path.read_text())
    for change, message in (
        ({"mean": [0.1]}, "1 means and 3 deviations for 3 channels"),
        ({"bands": [1]}, "3 means and 3 deviations for 1 channels"),
        ({"bands": []}, "of other types"),
        ({"schema": "laptime.data/3"}, "newer laptime"),
    ):
        path.write_text(json.dumps(meta | change))
        with pytest.raises(DataError, match=message):
            read_meta(path.parent)


def test_ten_thousand_classes_one_class_and_one_image(tmp_path: Path) -> None:
    names = [f"c{i:05}" for i in range(10_000)]
    many = arrange(Scan(tmp_path, [f"{n}/{i}.jpg" for n in names for i in range(5)], set(names)))
    assert (len(many.classes), len(many.train), len(many.test)) == (10_000, 40_000, 10_000)
    with pytest.raises(DataError, match="only one class, 'c00000'"):
        arrange(Scan(tmp_path, ["c00000/0.jpg"], {"c00000"}))
    with pytest.raises(DataError, match=r"the class 'c00001' of .* has one image, which can't be split"):
        arrange(Scan(tmp_path, ["c00000/0.jpg", "c00000/1.jpg", "c00001/0.jpg"], {"c00000", "c00001"}))
    with pytest.raises(DataError, match="test has no folder for each class: sort its images"):
        arrange(Scan(tmp_path, ["train/a/0.jpg", "train/b/0.jpg"], {"train", "test", "train/a", "train/b"}))


def packed(tiles: Path, tmp_path: Path) -> tuple[Path, eurosat.Archive]:
    """An archive in the form of the official one with all bands."""
    file = tmp_path / "web/all.zip"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as zipped:
        for path in tiles.rglob("*.tif"):
            zipped.write(path, f"ds/images/sentinel_2/tif/{path.relative_to(tiles)}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return file, eurosat.Archive("", "sha256", digest, file.stat().st_size, 2**20)


def job_of(home: Path, bands: tuple[int, ...] = ()) -> Job:
    return Job(find_workload("eurosat"), "official", Store(home / "data"), quiet, bands=bands)


def test_the_official_archive(tiles: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, archive = packed(tiles, tmp_path)
    with web(file.parent) as url:
        monkeypatch.setenv(eurosat.URL_VARIABLE, f"{url}/all.zip")
        entry = eurosat.OfficialEurosat(archive).fetch(job_of(home, (8, 4)))
        wrong = eurosat.Archive("", "sha256", "0" * 64, archive.size, archive.limit)
        with pytest.raises(DataError, match=r"wrong checksum \(SHA256"):
            eurosat.OfficialEurosat(wrong).fetch(job_of(home))
    assert (entry.kind, read_meta(home / "data" / entry.digest).bands) == ("official", (8, 4))
    shutil.rmtree(file.parent)
    assert eurosat.OfficialEurosat(archive).fetch(job_of(home, (8, 4))) == entry
    assert left_over(home) == []
    monkeypatch.setenv(eurosat.URL_VARIABLE, f"{nobody()}/all.zip")
    for asked in ("official", "official#bands=4,3,2"):
        with pytest.raises(UnreachableError):
            fetch("eurosat", asked, home)


def test_auto_with_bands_says_why_nobody_has_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(eurosat.URL_VARIABLE, f"{nobody()}/all.zip")
    # One that is stored already is not taken for bands either.
    monkeypatch.setattr(Synthetic, "stored", lambda self, job: pytest.fail("a stand-in has no bands"))
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1"):
        fetch("eurosat", "auto#bands=8", home)
    with pytest.raises(DataError, match="nothing is stored for 'eurosat' from 'auto#bands=8'"):
        verify("eurosat", "auto#bands=8", home)


def test_auto_passes_over_a_mirror_of_other_bands(
    tiles: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed = fetch("eurosat", f"{tiles}#bands=4,3", tmp_path / "there")
    shutil.copytree(pushed.path, tmp_path / "mirror/eurosat" / pushed.digest)
    latest = {"schema": LATEST_SCHEMA, "digest": pushed.digest}
    (tmp_path / "mirror/eurosat/latest.json").write_text(json.dumps(latest))
    file, archive = packed(tiles, tmp_path)
    monkeypatch.setattr(eurosat, "ALL_BANDS", archive)
    with web(tmp_path) as url:
        monkeypatch.setenv("LAPTIME_DATA_MIRROR", f"{url}/mirror")
        monkeypatch.setenv(eurosat.URL_VARIABLE, f"{url}/web/{file.name}")
        for asked, kind, bands in (("auto#bands=4,3", "mirror", (4, 3)), ("auto#bands=8", "official", (8,))):
            data = fetch("eurosat", asked, home)
            assert (data.kind, read_meta(Path(data.path)).bands) == (kind, bands)
        assert "does not hold the bands 8 of 'eurosat'" in data.notice
        monkeypatch.setenv(eurosat.URL_VARIABLE, f"{url}/nothing.zip")
        with pytest.raises(DataError, match=r"does not hold the bands 2 of 'eurosat': push them there"):
            fetch("eurosat", "auto#bands=2", home)
        with pytest.raises(UnreachableError, match=r"does not hold the bands 2 of 'eurosat': push them there"):
            fetch("eurosat", f"{url}/mirror#bands=2", home)


def test_a_huge_image_is_named(tiles: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = tiles / "Forest/Forest_0.tif"
    Image.new("RGB", (40, 40)).save(huge)
    for limit in (1000, 100):  # Pillow warns above its limit, and refuses above twice that
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(DataError, match=rf"{huge} has more pixels than is safe to decode"):
            fetch("eurosat", str(tiles), home)


def test_the_official_address_is_torchvisions() -> None:
    source = inspect.getsource(EuroSAT.download)
    assert f'"{eurosat.RGB.url}"' in source
    assert f'md5="{eurosat.RGB.checksum}"' in source


def test_the_stand_in_has_the_workloads_shape(tmp_path: Path) -> None:
    job = Job(find_workload("eurosat"), "synthetic", Store(tmp_path), quiet)
    assert job.workload.train_count + job.workload.test_count == 27_000
    meta = read_meta(tmp_path / Synthetic(500, None).fetch(job_with(job, test=100)).digest)
    assert meta.files["train_images"].shape == (500, 64, 64, 3)
    assert meta.test_count == 100


def job_with(job: Job, test: int) -> Job:
    from dataclasses import replace

    return replace(job, workload=replace(job.workload, test_count=test))
