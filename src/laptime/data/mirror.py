"""A mirror of stores: `<prefix>/<workload>/latest.json` and `<prefix>/<workload>/<digest>/*`, over s3:// or http(s)://."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Protocol

from laptime.data.disk import check_room, room_for
from laptime.data.meta import ARRAYS, META, FileMeta, StoreMeta, parse_meta, read_meta, verify_folder
from laptime.data.net import SHARE_S, Moved, download, read_url, shown
from laptime.data.resume import drop_tags, resumable_folder
from laptime.data.sources import Job, Meter, unseen
from laptime.data.store import Entry
from laptime.errors import DataError, UnreachableError
from laptime.parsing import other_schema, parse_json
from laptime.spec import DataKind

VARIABLE = "LAPTIME_DATA_MIRROR"
LATEST = "latest.json"
LATEST_SCHEMA = "laptime.data-latest/1"


class Place(Protocol):
    """Where a mirror's files are read from."""

    @property
    def url(self) -> str:
        """For messages."""

    @property
    def endpoint(self) -> str:
        """The http(s) address that must answer."""

    def read(self, name: str) -> bytes | None:
        """Reads a small file; None where there is none."""

    def download(self, name: str, to: Path, size: int, moved: Moved) -> None:
        """Downloads a file of `size` bytes, going on from what `to` holds of it."""


class HttpPlace:
    """A mirror behind any web server, read only."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    @property
    def url(self) -> str:
        """See Place."""
        return shown(self._url)

    @property
    def endpoint(self) -> str:
        """See Place."""
        return f"{self._url}/"

    def read(self, name: str) -> bytes | None:
        """See Place."""
        return read_url(f"{self._url}/{name}")

    def download(self, name: str, to: Path, size: int, moved: Moved) -> None:
        """See Place."""
        download(f"{self._url}/{name}", to, size, moved)


class Mirror:
    """The data of a workload on a mirror."""

    def __init__(self, url: str) -> None:
        self.given = url.rstrip("/")

    def stored(self, job: Job) -> Entry | None:
        """See Source; nothing, where it is of other bands than those that are asked for."""
        entry = job.store.recall(self._key(job))
        return entry if entry is None or _has_bands(read_meta(job.store.folder(entry.digest)), job) else None

    def fetch(self, job: Job) -> Entry:
        """See Source; what was fetched before is kept while the mirror says so, or says nothing."""
        before = self.stored(job)
        place = _place(self.given)
        try:
            # In `auto` the official archive is asked next, in the same 3 s.
            share_s = SHARE_S if job.asked == "auto" else math.inf
            job.budget.probe(place.endpoint, share_s)
            digest = _latest(place, job.workload.name)
        except UnreachableError as error:
            if before is None:
                raise
            return before.in_spite_of(error)
        if before is not None and before.digest == digest:
            return before
        if job.store.folder(digest).is_dir():
            meta = read_meta(job.store.folder(digest))
            _check_bands(meta, place, job)
        else:
            meta = _bring(place, f"{job.workload.name}/{digest}", digest, job)
        # A stand-in stays one, whatever way it took.
        kind: DataKind = "synthetic" if meta.kind == "synthetic" else "mirror"
        return job.store.remember(self._key(job), Entry(digest, kind, meta.notice))

    def _key(self, job: Job) -> str:
        return f"mirror|{job.workload.name}|{self.given}"


def _place(url: str) -> Place:
    if url.startswith("s3://"):
        from laptime.data.s3 import S3Place

        return S3Place(url)
    return HttpPlace(url)


def _latest(place: Place, workload: str) -> str:
    name = f"{workload}/{LATEST}"
    body = place.read(name)
    if body is None:
        raise UnreachableError(
            f"{place.url} has no data for {workload!r}: push some there first (laptime data push {workload} --to ...)."
        )
    try:
        fields = parse_json(body)
        schema, digest = fields["schema"], str(fields["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{place.url}/{name} is damaged: push the data there again.") from error
    if schema != LATEST_SCHEMA:
        again = "push the data there again with this version"
        raise DataError(f"{place.url}/{name} {other_schema(schema, LATEST_SCHEMA, again)}")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise DataError(f"{place.url}/{name} holds no digest: push the data there again.")
    return digest


def _bring(place: Place, prefix: str, digest: str, job: Job) -> StoreMeta:
    body = place.read(f"{prefix}/{META}")
    if body is None:
        raise DataError(f"{place.url}/{prefix} is not complete: push the data there again.")
    where = place.url if "://" in place.url else "the mirror"
    meta = parse_meta(body, f"{where}/{prefix}/{META}")
    if meta.digest != digest:
        raise DataError(f"{place.url}/{prefix} holds other data than its name says: push the data there again.")
    _check_bands(meta, place, job)
    root = job.store.root
    with resumable_folder(root, digest) as folder, room_for(root, meta.size):
        check_room(root, meta.size - sum(p.stat().st_size for p in folder.glob("*.npy")))
        meter = Meter(job.say, "downloading", meta.size)
        for name in ARRAYS:
            _get(place, f"{prefix}/{name}.npy", folder / f"{name}.npy", meta.files[name], meter)
        drop_tags(folder)
        (folder / META).write_bytes(body)
        try:
            verify_folder(folder)
        except DataError as error:
            raise DataError(
                f"the data at {place.url}/{prefix} is not what its meta.json says: push the data there again."
            ) from error
        job.store.adopt(folder, digest)
    return meta


def _has_bands(meta: StoreMeta, job: Job) -> bool:
    return not job.bands or meta.bands == job.bands


def _check_bands(meta: StoreMeta, place: Place, job: Job) -> None:
    """Before anything is downloaded; in `auto` another source may have the bands, so it counts as no answer."""
    if not _has_bands(meta, job):
        raise UnreachableError(
            f"{place.url} does not hold the bands {','.join(map(str, job.bands))} of {job.workload.name!r}: push them "
            "there, or give the images that they are in, with #bands= behind them."
        )


def _get(place: Place, name: str, path: Path, said: FileMeta, moved: Moved) -> None:
    begun = path.exists()
    place.download(name, path, said.size, moved)
    if begun and _sha256(path) != said.sha256:  # what an interruption left need not be sound
        path.unlink()
        place.download(name, path, said.size, unseen)
    found = _sha256(path)
    if found != said.sha256:
        raise DataError(
            f"{place.url}/{name} has the wrong checksum (SHA-256 {found[:12]}, should be {said.sha256[:12]}): try "
            "again, and if it stays wrong, push the data there again."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
