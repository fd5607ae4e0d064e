"""A run's way through the run store: its spec and data go out, and what it leaves comes back."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from laptime.data.archive import unpack
from laptime.data.objects import Objects, open_objects
from laptime.errors import RunError, answered
from laptime.host.scratch import scratch
from laptime.launchers.base import LOG, PROGRESS, RECORD, SPEC
from laptime.launchers.process import run_child
from laptime.parsing import parse_json
from laptime.places import find_places
from laptime.records import PARTIAL, SYSTEM, write_json
from laptime.runstore import PROFILE, PROFILE_ARCHIVE, data_place, failure_name
from laptime.spec import RunSpec

_BACK = (LOG, PROGRESS, PARTIAL, SYSTEM, "model.pt", "samples.png", "model_summary.txt", PROFILE_ARCHIVE, RECORD)


def hand_out(spec: RunSpec, store: str, run: str) -> Objects:
    """Puts data and spec into the store, the spec last; returns the run's place there.

    Raises:
        UsageError: the store is a place of an unknown kind.
        DataError: it can't be written.
    """
    place = open_objects(f"{store}/{run}")
    target = data_place(store, spec.data.digest)
    if store.startswith("s3://"):
        _push(spec, target)
    else:
        _copy(Path(spec.data.path), Path(target))
    place.write(spec.model_dump_json(by_alias=True).encode(), SPEC)
    return place


def bring_back(place: Objects, folder: Path) -> bool:
    """Fetches what a run left; returns whether a record is among it."""
    for name in _BACK:
        body = place.read(name)
        if body is not None:
            (folder / name).write_bytes(body)
    archive = folder / PROFILE_ARCHIVE
    if archive.is_file():
        shutil.rmtree(folder / PROFILE, ignore_errors=True)
        unpack(archive, folder / PROFILE)
        archive.unlink()
    return (folder / RECORD).is_file()


def failures(place: Objects, pods: int) -> list[str]:
    """What machines of a run said when their parts failed."""
    bodies = [place.read(failure_name(index)) for index in range(pods)]
    return [_told(body) for body in bodies if body is not None]


def _told(body: bytes) -> str:
    try:
        return str(parse_json(body)["error"])
    except (ValueError, LookupError, TypeError):
        return "its part failed, and what it left about it can't be read"


def _push(spec: RunSpec, to: str) -> None:
    with scratch("push") as folder:
        request, result = folder / "request.json", folder / "result.json"
        home = str(find_places().home)
        asked = {"do": "push", "workload": spec.workload, "asked": spec.data.path, "home": home, "to": to}
        write_json(request, asked)
        run_child("laptime.data", [str(request), str(result)], lambda _: None)
        if not result.is_file():
            raise RunError(f"the data could not be pushed to {to}: the process that does it left no answer.")
        found = json.loads(result.read_text(encoding="utf-8"))
        if "error" in found:
            raise answered(found)


def _copy(source: Path, target: Path) -> None:
    """Copies a store beside its place and renames it; where another was first, its copy is kept."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as part:
        copied = Path(shutil.copytree(source, Path(part) / target.name))
        try:
            copied.rename(target)
        except OSError:
            if not target.is_dir():
                raise
