"""Pushes a store to an S3 mirror, for other machines to fetch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from laptime.data.meta import ARRAYS, META, StoreMeta, verify_folder
from laptime.data.mirror import LATEST, LATEST_SCHEMA
from laptime.data.resume import going_on
from laptime.data.sources import Job, Meter
from laptime.errors import DataError

if TYPE_CHECKING:
    from laptime.data.s3 import S3Place

_KEPT = "What has arrived there is kept for a week: the same command goes on from there."


def push(folder: Path, workload: str, to: str, job: Job) -> None:
    """Uploads a store to an S3 mirror.

    The arrays go first, under a name that stands for their content, then meta.json, then latest.json, so that a half
    push is never read. latest.json is written only while it says what it said before.

    Raises:
        UnreachableError: the endpoint does not answer, or stops in the middle; the same push goes on from there.
        DataError: no such bucket, no credentials, not allowed; another push was first; or the store is damaged.
    """
    from laptime.data.s3 import S3Place

    meta = verify_folder(folder)
    place = S3Place(to)
    job.budget.probe(place.endpoint)
    place.check()
    before = place.seen(f"{workload}/{LATEST}")[1]
    place.abort_stale(f"{workload}/")
    _push_files(folder, f"{workload}/{meta.digest}", meta, place, job)
    latest = json.dumps({"schema": LATEST_SCHEMA, "digest": meta.digest}).encode()
    if not place.swap(latest, f"{workload}/{LATEST}", before):
        raise DataError(
            f"another push of {workload!r} to {place.url} came first and stays the latest there; this one's data is "
            "there too: push again if it should be the latest."
        )


def _push_files(folder: Path, prefix: str, meta: StoreMeta, place: S3Place, job: Job) -> None:
    files = {name: meta.files[name] for name in ARRAYS}
    missing = {n: f for n, f in files.items() if not place.holds(f"{prefix}/{n}.npy", f.size, f.sha256)}
    meter = Meter(job.say, "uploading", sum(f.size for f in missing.values()))
    with going_on(_KEPT):
        for name, said in missing.items():
            place.upload(folder / f"{name}.npy", f"{prefix}/{name}.npy", said.sha256, meter)
    body = (folder / META).read_bytes()
    there, etag = place.seen(f"{prefix}/{META}")
    if there != body and not place.swap(body, f"{prefix}/{META}", etag):
        raise DataError(f"another push to {place.url}/{prefix} is at work: try again.")
