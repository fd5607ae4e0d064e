"""Data that somebody made to do harm: archives, images, addresses and names of classes."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from data_samples import MakeFolder, left_over, stores, write_image
from PIL import Image

from laptime.data import archive as archives
from laptime.data.archive import unpack
from laptime.data.bands import read_bands
from laptime.data.decode import read_image
from laptime.data.fetch import fetch
from laptime.errors import DataError


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


def tar(*members: tarfile.TarInfo, mode: str = "w", form: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=form) as packed:
        for info in members:
            packed.addfile(info, io.BytesIO(bytes(info.size)))
    return file.getvalue()


def zipped(*names: str, size: int = 10) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that stand twice
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for name in names:
                packed.writestr(name, bytes(size))
    return file.getvalue()


def huge_header(kind: bytes) -> bytes:
    """A header that says that 8 GiB of names follow, and 4 MiB of them."""
    info = member("x", kind=kind)
    info.size = 8 << 30
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(4 << 20)


def through_a_link() -> bytes:
    return tar(member("a", kind=tarfile.SYMTYPE, link="/tmp"), member("a/pwned.png", 3))


def damaged_in_the_middle() -> bytes:
    body = bytearray(tar(member("a/1.png", 3), member("a/2.png", 3), member("a/3.png", 3)))
    body[1024 + 150] ^= 0xFF  # in the checksum of the second header
    return bytes(body)


ARCHIVES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "a file through a link": ("a.tar", through_a_link, "'a' in it is a link"),
    "a hard link": ("a.tar", lambda: tar(member("a", kind=tarfile.LNKTYPE, link="/etc/passwd")), "is a link"),
    "a device": ("a.tar.gz", lambda: tar(member("a", kind=tarfile.BLKTYPE), mode="w:gz"), "is a device"),
    "a contiguous pipe": ("a.tar.xz", lambda: tar(member("a", kind=tarfile.FIFOTYPE), mode="w:xz"), "is a device"),
    "a path in a pax header": ("a.tar", lambda: tar(member("é/" * 60 + "../" * 80 + "x")), "climbs out"),
    "a name of 10,000 letters": ("a.tar", lambda: tar(member("n" * 10_000, 1)), "File name too long"),
    "a path of 4,000 folders": ("a.tar", lambda: tar(member("a/" * 4_000 + "x", 1)), "File name too long"),
    "a terminal's codes": (
        "a.zip",
        lambda: zipped("../\x1b[31m\u202egnp.x"),
        r"31m\?gnp\.x' in it climbs out",
    ),
    "a name twice": ("a.zip", lambda: zipped("a/1.png", "a/1.png"), "File exists"),
    "a file for a folder": ("a.zip", lambda: zipped("a", "a/1.png"), "Not a directory|File exists"),
    "a long pax header": ("a.tar", lambda: huge_header(tarfile.XHDTYPE), "damaged or cut off"),
    "a long global header": ("a.tar", lambda: huge_header(tarfile.XGLTYPE), "damaged or cut off"),
    "a long name of GNU's": ("a.tar", lambda: huge_header(tarfile.GNUTYPE_LONGNAME), "damaged or cut off"),
    "a damaged header": ("a.tar", damaged_in_the_middle, "damaged or cut off .*header"),
    "no mark of the end": ("a.tar", lambda: tar(member("a/1.png", 3))[:1024], "damaged or cut off"),
    "another kind": ("a.zip", lambda: tar(member("a/1.png")), "damaged or cut off"),
    "a damaged one packed": ("a.tar.gz", lambda: gzip.compress(damaged_in_the_middle()), "damaged or cut off"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_does_harm(tmp_path: Path, name: str) -> None:
    file, make, message = ARCHIVES[name]
    (tmp_path / file).write_bytes(make())
    with pytest.raises(DataError, match=message) as caught:
        unpack(tmp_path / file, tmp_path / "room" / "into")
    assert str(caught.value).isprintable()
    outside = {p for p in tmp_path.rglob("*") if not p.is_relative_to(tmp_path / "room" / "into")}
    assert outside == {tmp_path / file, tmp_path / "room"} or outside == {tmp_path / file}
    assert not Path("/tmp/pwned.png").exists()


def test_a_name_with_a_nul_ends_there_or_is_refused(tmp_path: Path) -> None:
    info = member("a.png", 1)
    info.pax_headers = {"path": "a\0/../../b.png"}
    (tmp_path / "a.tar").write_bytes(tar(info))
    with pytest.raises(DataError, match=r"climbs out|damaged"):
        unpack(tmp_path / "a.tar", tmp_path / "into")


@pytest.mark.parametrize(
    ("file", "make"),
    [
        ("a.tar.gz", lambda: tar(member("a/0.png", 8 << 20), mode="w:gz")),
        ("a.tar.xz", lambda: tar(member("a/0.png", 8 << 20), mode="w:xz")),
        ("a.tar.bz2", lambda: tar(member("a/0.png", 8 << 20), mode="w:bz2")),
        ("a.zip", lambda: zipped("a/0.png", size=8 << 20)),
        ("many.tar.xz", lambda: tar(*(member(f"a/{i}.png") for i in range(2000)), mode="w:xz")),
    ],
)
def test_a_bomb_by_what_it_grows_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, make: Callable[[], bytes]
) -> None:
    """A GiB is always allowed; here a MiB is, so that the test does not fill a disk either."""
    monkeypatch.setattr(archives, "_ALWAYS", 1 << 20)
    path = tmp_path / file
    path.write_bytes(make())
    assert path.stat().st_size < 32 << 10
    with pytest.raises(DataError, match="more than is allowed"):
        unpack(path, tmp_path / "into")
    assert sum(p.stat().st_size for p in (tmp_path / "into").rglob("*") if p.is_file()) <= 5 << 20


def test_what_is_packed_twice_is_unpacked_once(tmp_path: Path, home: Path) -> None:
    inner = zipped("cat/0.png", size=1 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("inner.zip", inner)
    with pytest.raises(DataError, match="has no class"):
        fetch("cifar", str(tmp_path / "a.zip"), home)
    assert stores(home) == left_over(home) == []


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def jpeg(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG")
    body = bytearray(file.getvalue())
    at = body.index(b"\xff\xc0") + 5
    body[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(body)


def program() -> bytes:
    """What Ghostscript would run, under the name of an image."""
    return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(/tmp/pwned) (w) file closefile showpage\n"


IMAGES = {
    "a.png": (png(100_000, 100_000), "more pixels than is safe"),
    "flat.png": (png(2**31 - 1, 1), "more pixels than is safe"),
    "big.jpg": (jpeg(65_000, 65_000), "more pixels than is safe"),
    "none.png": (png(0, 0), "unreadable or cut off"),
    "eps.png": (program(), "unreadable or cut off"),
    "pickle.png": (b"\x80\x04cos\nsystem\n.", "unreadable or cut off"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_that_does_harm(tmp_path: Path, home: Path, make_folder: MakeFolder, name: str) -> None:
    body, message = IMAGES[name]
    root = make_folder()
    (root / "train" / "cat" / name).write_bytes(body)
    with pytest.raises(DataError, match=message):
        read_image(root / "train" / "cat" / name)
    with pytest.raises(DataError, match=rf"the image .*{name} .*{message}"):
        fetch("cifar", str(root), home)
    assert stores(home) == left_over(home) == []


def test_a_geotiff_that_says_it_is_huge(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((8, 8, 5), np.uint16), photometric="minisblack", planarconfig="contig")
    with tifffile.TiffFile(path, mode="r+b") as tif:
        tif.pages[0].tags["ImageWidth"].overwrite(2_000_000)
        tif.pages[0].tags["ImageLength"].overwrite(2_000_000)
    with pytest.raises(DataError, match="20000000000000 values, more than"):
        read_bands(path, (1,))


NAMES = (
    "<script>alert(1)<",
    "a\nb",
    "\x1b[31mred",
    "\u202etxt.exe",
    "-rf",
    "|x|`y`$z$@team",
    "n" * 200,
    "CON",
    "é",
    " ",
)


def test_classes_of_any_name_are_kept_as_they_are(tmp_path: Path, home: Path) -> None:
    for number, name in enumerate(NAMES):
        for i in range(2):
            write_image(tmp_path / "odd" / name / f"{i}.png", 10 * number + i)
    assert fetch("cifar", str(tmp_path / "odd"), home).classes == tuple(sorted(NAMES))


def test_a_class_whose_name_is_no_text_is_refused(tmp_path: Path, home: Path) -> None:
    for i, name in enumerate((b"good", b"b\xff\xfe")):
        for j in range(2):
            write_image(tmp_path / "odd" / os.fsdecode(name) / f"{j}.png", 2 * i + j)
    with pytest.raises(DataError, match="has a name that is no UTF-8: rename it") as caught:
        fetch("cifar", str(tmp_path / "odd"), home)
    assert str(caught.value).isprintable()
