"""A user's own images: a folder, or an archive of one given by path or address."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from laptime.data.archive import SUFFIXES, inner_folder, is_archive, told_of, unpack
from laptime.data.disk import partial_folder, room_for
from laptime.data.listing import Listing, arrange, scan
from laptime.data.net import download, length_of, shown
from laptime.data.sources import Job, Meter
from laptime.data.store import Entry
from laptime.errors import UnreachableError
from laptime.places import expanded

# A folder's images are read differently by another version of these rules; part of the index key.
_RULES = 5
_DOWNLOAD_LIMIT = 64 * 2**30


class Folder:
    """A folder, or an archive on this machine."""

    def __init__(self, path: str) -> None:
        self.path = expanded(path).resolve()

    def stored(self, job: Job) -> Entry | None:
        """See Source; a folder that was changed since is another one."""
        return job.store.recall(self._key(job))

    def look(self, job: Job) -> tuple[int, int] | None:
        """Refuses what `fetch` would by its names alone: a folder without classes, say; raises as `fetch`.

        Returns:
            How many images a folder has to train and to test on; None of an archive.
        """
        if self._packed:
            return None
        found = arrange(scan(self.path), job.seed)
        return len(found.train), len(found.test)

    @property
    def _packed(self) -> bool:
        return self.path.is_file() and is_archive(self.path.name)

    def fetch(self, job: Job) -> Entry:
        """See Source."""
        if self._packed:
            key = self._key(job)
            return job.store.recall(key) or job.store.remember(key, _from_archive(self.path, job))
        found = scan(self.path)
        key = _key(job, str(self.path), found.key)
        return job.store.recall(key) or job.store.remember(key, _decode(arrange(found, job.seed), job))

    def _key(self, job: Job) -> str:
        if self.path.is_file():
            stat = self.path.stat()
            return _key(job, str(self.path), f"{stat.st_size}:{stat.st_mtime_ns}")
        return _key(job, str(self.path), scan(self.path).key)


class ArchiveUrl:
    """An archive of an image folder at an http(s) address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def stored(self, job: Job) -> Entry | None:
        """See Source."""
        return job.store.recall(_key(job, self.url, ""))

    def fetch(self, job: Job) -> Entry:
        """See Source; what was fetched before is kept while the server shows the same state, or nothing."""

        def read(archive: Path) -> Entry:
            return _from_archive(archive, job, shown(self.url))

        return fetch_anew(self.url, _key(job, self.url, ""), job, read)


def fetch_anew(url: str, key: str, job: Job, read: Callable[[Path], Entry]) -> Entry:
    """What the archive at an address holds, downloaded where its server shows another state than before.

    Args:
        url: the address.
        key: of the source in the store's index.
        job: for whom.
        read: reads the archive into the store.

    Raises:
        UnreachableError: the server does not answer, and nothing was fetched before.
    """
    before = job.store.recall(key)
    try:
        headers = job.budget.probe(url)
        stamp = "|".join(headers.get(name, "") for name in ("etag", "last-modified", "content-length"))
        if before is not None and before.stamp == stamp:
            return before
        with partial_folder(job.store.root) as folder:
            entry = replace(read(download_archive(url, headers, folder, job)), stamp=stamp)
    except UnreachableError as error:
        if before is None:
            raise
        return before.in_spite_of(error)
    return job.store.remember(key, entry)


def is_archive_url(url: str) -> bool:
    """Whether the path of an address, however long, ends as an archive's."""
    return is_archive(_path(url))


def download_archive(url: str, headers: dict[str, str], folder: Path, job: Job) -> Path:
    """Downloads the archive at an address into a folder; `headers` are those that its server showed.

    Raises:
        UnreachableError: the server stops before the end.
        DataError: it sends too much, or the disk is full.
    """
    # Not by the address's own name: it may be too long for a file's, or anything else.
    path = _path(url).lower()
    archive = folder / f"archive{next(s for s in SUFFIXES if path.endswith(s))}"
    total = length_of(headers.get("content-length"))
    with room_for(job.store.root, total):
        download(url, archive, _DOWNLOAD_LIMIT, Meter(job.say, "downloading", total))
    return archive


def _path(url: str) -> str:
    try:
        return urllib.parse.urlsplit(url).path
    except ValueError:  # what asks the server says what is wrong with it
        return url.partition("?")[0]


def _key(job: Job, where: str, state: str) -> str:
    return f"folder/{_RULES}|{job.workload.image_size}|{where}|{state}{job.chosen}"


def _from_archive(archive: Path, job: Job, asked: str = "") -> Entry:
    with partial_folder(job.store.root) as folder:
        job.say("unpacking", 0, 0)
        unpack(archive, folder)
        with told_of(asked or archive, folder):
            return _decode(arrange(scan(inner_folder(folder)), job.seed), job, asked or str(archive))


def _decode(listing: Listing, job: Job, asked: str = "") -> Entry:
    from laptime.data.ingest import ingest

    return ingest(listing, job, asked or str(listing.root))
