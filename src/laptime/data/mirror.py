"""A mirror of stores: `<prefix>/<workload>/latest.json` and `<prefix>/<workload>/<digest>/*`, over s3:// or http(s)://."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from laptime.data.disk import check_room, partial_folder, room_for
from laptime.data.meta import ARRAYS, META, StoreMeta, parse_meta, read_meta, verify_folder
from laptime.data.net import SHARE_S, Moved, download, read_url, shown
from laptime.data.sources import Job, Meter
from laptime.data.store import Entry
from laptime.errors import DataError, UnreachableError, UsageError, shorten
from laptime.spec import DataKind

VARIABLE = "LAPTIME_DATA_MIRROR"
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
        """Downloads a file of `size` bytes."""


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
        """See Source."""
        return job.store.recall(self._key(job))

    def fetch(self, job: Job) -> Entry:
        """See Source; what was fetched before is kept while the mirror says so, or says nothing."""
        before = self.stored(job)
        place = _place(self.given)
        try:
            # In `auto` the official archive is asked next, in the same 3 s.
            share_s = SHARE_S if job.asked == "auto" else job.budget.left_s
            job.budget.probe(place.endpoint, share_s)
            digest = _latest(place, job.workload.name)
        except UnreachableError as error:
            if before is None:
                raise
            return replace(before, notice=f"{before.notice} {error} The copy fetched earlier is used.".strip())
        if before is not None and before.digest == digest:
            return before
        if job.store.folder(digest).is_dir():
            meta = read_meta(job.store.folder(digest))
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
    name = f"{workload}/latest.json"
    body = place.read(name)
    if body is None:
        raise UnreachableError(
            f"{place.url} has no data for {workload!r}: push some there first (laptime data push {workload} --to ...)."
        )
    try:
        fields = json.loads(body)
        schema, digest = fields["schema"], str(fields["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{place.url}/{name} is damaged: push the data there again.") from error
    if schema != LATEST_SCHEMA:
        raise DataError(
            f"{place.url}/{name} has schema {shorten(str(schema))!r}, this version reads {LATEST_SCHEMA!r}: "
            "push the data there again with this version."
        )
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
    root = job.store.root
    with partial_folder(root) as folder, room_for(root, meta.size):
        check_room(root, meta.size)
        meter = Meter(job.say, "downloading", meta.size)
        for name in ARRAYS:
            path = folder / f"{name}.npy"
            place.download(f"{prefix}/{path.name}", path, meta.files[name].size, meter)
            _check(path, meta.files[name].sha256, f"{place.url}/{prefix}/{path.name}")
        (folder / META).write_bytes(body)
        try:
            verify_folder(folder)
        except DataError as error:
            raise DataError(
                f"the data at {place.url}/{prefix} is not what its meta.json says: push the data there again."
            ) from error
        job.store.adopt(folder, digest)
    return meta


def _check(path: Path, sha256: str, name: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise DataError(
            f"{name} has the wrong checksum (SHA-256 {found[:12]}, should be {sha256[:12]}): try again, "
            "and if it stays wrong, push the data there again."
        )


def push(folder: Path, workload: str, to: str, job: Job) -> None:
    """Uploads a store to an S3 mirror.

    The arrays go first, then meta.json, then latest.json, so that a half push is never read.

    Raises:
        UsageError: `to` is no s3:// address.
        UnreachableError: the endpoint does not answer.
        DataError: no such bucket, no credentials, or the store is damaged.
    """
    if not to.startswith("s3://"):
        raise UsageError(f"{shorten(to)!r} can't be pushed to: give --to s3://bucket/prefix.")
    from laptime.data.s3 import S3Place

    meta = verify_folder(folder)
    place = S3Place(to)
    job.budget.probe(place.endpoint, job.budget.left_s)
    place.check()
    prefix = f"{workload}/{meta.digest}"
    body = (folder / META).read_bytes()
    if place.read(f"{prefix}/{META}") != body:
        meter = Meter(job.say, "uploading", meta.size)
        for name in ARRAYS:
            place.upload(folder / f"{name}.npy", f"{prefix}/{name}.npy", meter)
        place.write(body, f"{prefix}/{META}")
    latest = {"schema": LATEST_SCHEMA, "digest": meta.digest}
    place.write(json.dumps(latest).encode(), f"{workload}/latest.json")
