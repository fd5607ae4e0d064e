"""Archives of an image folder, by path and by address."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from data_samples import MakeFolder, left_over, nobody, stores, web, write_image

from laptime.data.archive import inner_folder, unpack
from laptime.data.fetch import fetch
from laptime.errors import DataError, UnreachableError


def pack(root: Path, to: Path, top: str = "images") -> Path:
    if to.suffix == ".zip":
        between = "\\" if "windows" in to.name else "/"
        with zipfile.ZipFile(to, "w") as zipped:
            for path in sorted(root.rglob("*.png")):
                # ZipInfo, since write() puts slashes between.
                name = f"{top}/{path.relative_to(root)}".replace("/", between)
                zipped.writestr(zipfile.ZipInfo(name), path.read_bytes())
            zipped.writestr(zipfile.ZipInfo(f"{top}{between}"), b"")
    else:
        with tarfile.open(to, f"w:{to.suffix[1:]}" if to.suffix != ".tar" else "w") as tar:
            tar.add(root, top)
    return to


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.xz", "a.zip", "windows.zip"])
def test_an_archive_is_its_folder(make_folder: MakeFolder, home: Path, tmp_path: Path, name: str) -> None:
    root = make_folder()
    archive = pack(root, tmp_path / name)
    data = fetch("cifar", str(archive), home)
    assert data.digest == fetch("cifar", str(root), home).digest
    said: list[str] = []
    assert fetch("cifar", str(archive), home, lambda what, done, total: said.append(what)) == data
    assert said == []
    assert left_over(home) == []


def tar_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (member("../out.png"), r"'\.\./out\.png' in it climbs out"),
        (member("a/../../out.png"), "climbs out"),
        (member("/abs/out.png"), "climbs out"),
        (member("a\\b.png"), "in it has a backslash in its name"),
        (member("a/link.png", tarfile.SYMTYPE, "/etc/passwd"), "'a/link.png' in it is a link"),
        (member("a/hard.png", tarfile.LNKTYPE, "b"), "is a link"),
        (member("a/null", tarfile.CHRTYPE), "is a device"),
        (member("a/pipe", tarfile.FIFOTYPE), "is a device"),
    ],
)
def test_a_tar_that_reaches_out(tmp_path: Path, home: Path, info: tarfile.TarInfo, message: str) -> None:
    archive = tar_of(tmp_path / "bad.tar", member("a/good.png"), info)
    with pytest.raises(DataError, match=message):
        fetch("cifar", str(archive), home)
    assert not (tmp_path / "out.png").exists()
    assert stores(home) == left_over(home) == []


@pytest.mark.parametrize(
    ("name", "mode", "message"),
    [
        ("../out.png", stat.S_IFREG, "climbs out"),
        ("/abs.png", stat.S_IFREG, "climbs out"),
        ("C:\\x.png", stat.S_IFREG, "climbs out"),
        ("a\\..\\..\\out.png", stat.S_IFREG, "climbs out"),
        ("\\\\host\\share\\out.png", stat.S_IFREG, "climbs out"),
        ("a/link.png", stat.S_IFLNK, "is a link"),
        ("a/null", stat.S_IFCHR, "is a device"),
    ],
)
def test_a_zip_that_reaches_out(tmp_path: Path, home: Path, name: str, mode: int, message: str) -> None:
    info = zipfile.ZipInfo(name)
    info.external_attr = (mode | 0o644) << 16
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as zipped:
        zipped.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match=message):
        fetch("cifar", str(tmp_path / "bad.zip"), home)
    assert stores(home) == left_over(home) == []


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.xz", "a.zip", "a.tar"])
def test_a_cut_off_archive(make_folder: MakeFolder, home: Path, tmp_path: Path, name: str) -> None:
    archive = pack(make_folder(), tmp_path / name)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DataError, match=r"the archive .* is damaged or cut off .*: get it again"):
        fetch("cifar", str(archive), home)
    assert stores(home) == left_over(home) == []


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.tar.gz"])
def test_a_bomb(tmp_path: Path, name: str) -> None:
    archive = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("a/zeros.png", bytes(2**22))
    else:
        with tarfile.open(archive, "w:gz") as tar:
            info = tarfile.TarInfo("a/zeros.png")
            info.size = 2**22
            tar.addfile(info, io.BytesIO(bytes(2**22)))
    assert archive.stat().st_size < 2**16
    with pytest.raises(DataError, match="more than is allowed"):
        unpack(archive, tmp_path / "into", limit=2**20)


def test_the_folder_inside(tmp_path: Path) -> None:
    write_image(tmp_path / "x/outer/data/train/cat/0.png", 1)
    write_image(tmp_path / "x/outer/data/test/cat/0.png", 1)
    (tmp_path / "x/__MACOSX").mkdir()
    assert inner_folder(tmp_path / "x") == tmp_path / "x/outer/data"


def test_by_address(make_folder: MakeFolder, home: Path, tmp_path: Path) -> None:
    root = make_folder()
    served = tmp_path / "served"
    served.mkdir()
    pack(root, served / "a.tar.gz")
    said: list[str] = []
    with web(served) as address:
        url = f"{address}/a.tar.gz"
        data = fetch("cifar", url, home)
        assert data.digest == fetch("cifar", str(root), home).digest
        assert fetch("cifar", url, home, lambda what, done, total: said.append(what)) == data
        assert said == []
        with pytest.raises(UnreachableError, match="status 404"):
            fetch("cifar", f"{address}/b.tar.gz", home)
    later = fetch("cifar", url, home)
    assert later.digest == data.digest
    assert "The copy fetched earlier is used." in later.notice
    assert left_over(home) == []


def test_an_address_where_nobody_is(home: Path) -> None:
    with pytest.raises(UnreachableError, match="can't be reached"):
        fetch("cifar", f"{nobody()}/a.zip", home)
