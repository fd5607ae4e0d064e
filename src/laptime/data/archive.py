"""Unpacks an archive that nobody vouches for: no path climbs out, no link, no device, no bomb."""

from __future__ import annotations

import hashlib
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Self

from laptime.data.disk import FULL, room_for
from laptime.data.listing import IMAGE_SUFFIXES, PASSED
from laptime.errors import DataError, UsageError, shorten

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".zip")
_LIMIT = 64 * 2**30
# Images are compressed already: what grows beyond both of these was made to fill a disk.
_GROWTH, _ALWAYS = 100, 2**30
_MEMBERS = 20_000_000
_BLOCK = 1 << 20
# A file takes as much of a disk at least, so that a million empty ones count too.
_LEAST = 4096
# Names and other facts that stand before a member, which tarfile reads into memory whole.
_LONGEST_HEADER = 1 << 20
_BEFORE = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error),
    *(EOFError, RuntimeError, OSError, ValueError, OverflowError, LookupError),
)


def is_archive(name: str) -> bool:
    """Whether a file name or URL path ends as an archive's does."""
    return name.lower().endswith(SUFFIXES)


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    file: IO[bytes]


def check_published(path: Path, algorithm: str, checksum: str, name: str) -> None:
    """Compares a file with the checksum that its publisher gives; raises DataError.

    Args:
        path: the file.
        algorithm: as hashlib names it; it guards against damage, so a broken one such as MD5 will do.
        checksum: in hexadecimal digits.
        name: of the file, for the message.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    if found != checksum:
        raise DataError(
            f"{name} has the wrong checksum ({algorithm.upper()} {found}, should be {checksum}): try again, and if it "
            "stays wrong, take the data from another place with --data."
        )


class _TarInfo(tarfile.TarInfo):
    """A header that is looked at before tarfile does what it says."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        """See tarfile, which takes a damaged header in the middle, and an end without its mark, for the end.

        Raises:
            tarfile.ReadError: the header is damaged, missing, or asks for more memory than any name needs.
        """
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the mark of the end
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error

    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        """What comes behind a header, see tarfile, which has this for subclasses."""
        if self.type in _BEFORE and self.size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def unpack(archive: Path, into: Path, limit: int = _LIMIT) -> None:
    """Unpacks the regular files of a tar or zip archive.

    Args:
        archive: the file; its name says what it is.
        into: a folder that is made if it does not exist.
        limit: bytes that the files may have together, counted as they come out and not as the archive says. Above
            1 GiB they may also have no more than a hundred times the archive's own.

    Raises:
        DataError: the archive is damaged or cut off, holds a path that climbs out, a link or a device (all
            named), or more than `limit`; or the disk is full.
    """
    left = limit = min(limit, max(_ALWAYS, _GROWTH * archive.stat().st_size))
    members = _zip_members(archive) if archive.name.lower().endswith(".zip") else _tar_members(archive, into)
    try:
        with closing(members):
            for count, member in enumerate(members):
                if count > _MEMBERS:
                    raise DataError(
                        f"{archive} holds more than {_MEMBERS} files: unpack it yourself and give the folder."
                    )
                left -= max(_LEAST, _write(member, into / member.name, left, archive))
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno in FULL:
            with room_for(into, limit - left):
                raise
        reason = shorten(str(error) or type(error).__name__)
        raise DataError(f"the archive {archive} is damaged or cut off ({reason}): get it again.") from error


def _write(member: _Member, to: Path, left: int, archive: Path) -> int:
    if member.size > left:
        raise _too_large(archive)
    to.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with room_for(to.parent, member.size), to.open("xb") as out:
        while block := member.file.read(_BLOCK):
            written += len(block)
            if written > left:
                raise _too_large(archive)
            out.write(block)
    return written


def _tar_members(archive: Path, into: Path) -> Generator[_Member, None, None]:
    with tarfile.open(archive, "r:*", tarinfo=_TarInfo) as tar:
        for member in tar:
            if member.issym() or member.islnk():
                raise _refused(archive, member.name, "is a link")
            if not (member.isreg() or member.isdir()):
                raise _refused(archive, member.name, "is a device or another special file")
            name = _safe(archive, member.name)
            # Python 3.11.0 to 3.11.3 have no filters; the checks above and in _safe hold there alone.
            if hasattr(tarfile, "data_filter"):
                try:
                    tarfile.data_filter(member, str(into))
                except tarfile.FilterError as error:
                    raise _refused(archive, member.name, "is not safe to unpack") from error
            file = tar.extractfile(member) if member.isreg() else None
            if file is not None:
                with file:
                    yield _Member(name, member.size, file)


def _zip_members(archive: Path) -> Generator[_Member, None, None]:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind == stat.S_IFLNK:
                raise _refused(archive, info.filename, "is a link")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(archive, info.filename, "is a device or another special file")
            # Windows' own tools write backslashes between folders (.NET before 4.6.1, some still).
            name = _safe(archive, info.filename.replace("\\", "/"))
            if not info.filename.endswith(("/", "\\")):
                with zipped.open(info) as file:
                    yield _Member(name, info.file_size, file)


def _safe(archive: Path, name: str) -> str:
    path = PurePosixPath(name)
    if "\\" in name:
        raise _refused(archive, name, "has a backslash in its name")
    if path.is_absolute() or PureWindowsPath(name).drive or ".." in path.parts:
        raise _refused(archive, name, "climbs out of the folder that it is unpacked to")
    return str(path)


def _refused(archive: Path, name: str, why: str) -> DataError:
    return DataError(f"{archive} is not unpacked: {shorten(name)!r} in it {why}; use an archive of plain files.")


def _too_large(archive: Path) -> DataError:
    return DataError(f"{archive} unpacks to more than is allowed: unpack it yourself and give the folder.")


def inner_folder(folder: Path) -> Path:
    """The folder that holds the data: archives mostly wrap everything in one folder of their name.

    A note may lie beside that; an image or a CSV there is data.
    """
    while True:
        inside = [p for p in folder.iterdir() if not p.name.startswith(PASSED)]
        folders = [p for p in inside if p.is_dir()]
        data = any(p.suffix.lower().lstrip(".") in (*IMAGE_SUFFIXES, "csv") for p in inside if p not in folders)
        if len(folders) != 1 or data or not any(p.is_dir() for p in folders[0].iterdir()):
            return folder
        folder = folders[0]


@contextmanager
def told_of(archive: Path | str, folder: Path) -> Iterator[None]:
    """Errors within it name the archive, not the folder that it was unpacked to, which is gone by then."""
    try:
        yield
    except (DataError, UsageError) as error:
        raise type(error)(str(error).replace(str(folder), str(archive))) from error
