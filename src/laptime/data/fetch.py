"""Data for a workload: from the first source that has it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from laptime.catalogue import find_workload
from laptime.data.bands import chosen_bands
from laptime.data.boxes.fetch import fetch_boxes, look_for_boxes, verify_stored
from laptime.data.choices import BANDS, SEED, SIZE, read_seed, read_size, split_choices
from laptime.data.disk import sweep
from laptime.data.eurosat import OfficialEurosat
from laptime.data.folder import ArchiveUrl, Folder, is_archive_url
from laptime.data.meta import META, read_meta
from laptime.data.mirror import VARIABLE, Mirror
from laptime.data.official import Official
from laptime.data.push import push as push_store
from laptime.data.resume import sweep_kept
from laptime.data.sources import Job, Say, Source, quiet
from laptime.data.store import Entry, Store, open_store
from laptime.data.synthetic import Synthetic
from laptime.errors import UnreachableError, UsageError, shorten
from laptime.places import expanded
from laptime.spec import DataSpec


def fetch(workload: str, asked: str, home: Path, say: Say = quiet) -> DataSpec:
    """Brings data into the local store, or finds that it is there.

    Args:
        workload: name in the catalogue.
        asked: `auto`, `official`, `synthetic`, a folder, an archive of one, a store's folder (which is used as it
            is, where it is), or an address (s3://, http(s)://); `#bands=4,3,2` behind it chooses bands, `#size=96` the
            height and width of a folder's images, `#seed=1` another test of what comes without one.
        home: the LAPTIME_HOME; stores stand in its `data`.
        say: told what is being done and how far it is.

    Raises:
        UsageError: the workload or the kind of source does not exist.
        UnreachableError: the source that was asked for does not answer; or bands or a seed are asked for and none has
            them.
        DataError: it answers, and what it gives can't be used; or the disk is full.
    """
    job = _job(workload, asked, home, say)
    if job.workload.boxes:
        return fetch_boxes(job, asked)
    if (store := _named_store(job, asked)) is not None:
        return store
    sweep(job.store.root)
    sweep_kept(job.store.root)
    entry = _auto(job) if job.asked == "auto" else source_of(job).fetch(job)
    return _chosen_already(job.store.spec(entry, asked), job)


def look(workload: str, asked: str, home: Path) -> tuple[int, int] | None:
    """Refuses what `fetch` would, as far as names on this machine tell; decodes, asks for and writes nothing.

    Returns:
        How many images there are to train and to test on; None where names and what is stored don't tell.

    Raises:
        LaptimeError: as `fetch`.
    """
    job = _job(workload, asked, home, quiet)
    data = look_for_boxes(job) if job.workload.boxes else _named_store(job, asked)
    if data is not None:
        return data.train_count, data.test_count
    if job.workload.boxes:
        return None
    sources = _auto_sources(job) if job.asked == "auto" else [source_of(job)]
    found = [_looked_at(source, job) for source in sources]
    return found[0] if found else None


def _looked_at(source: Source, job: Job) -> tuple[int, int] | None:
    counts = source.look(job) if isinstance(source, Folder) else None
    entry = source.stored(job) if counts is None else None
    if entry is None:
        return counts
    data = job.store.spec(entry, job.asked)
    return data.train_count, data.test_count


def verify(workload: str, asked: str, home: Path, say: Say = quiet) -> DataSpec:
    """Checks every byte of what the local store holds for a source; never asks the network.

    Raises:
        DataError: nothing is stored, or a file is wrong (named).
    """
    job = _job(workload, asked, home, say)
    if job.workload.boxes:
        return verify_stored(job, asked)
    sources = _with_stand_in(job) if job.asked == "auto" else [source_of(job)]
    entry = next((e for s in sources if (e := s.stored(job)) is not None), None)
    if entry is None:
        raise job.nothing_stored(asked)
    say("verifying", 0, 0)
    job.store.verify(entry.digest)
    return job.store.spec(entry, asked)


def push(workload: str, asked: str, home: Path, to: str, say: Say = quiet) -> DataSpec:
    """Fetches data and puts its store on an S3 mirror.

    Args:
        workload: name in the catalogue.
        asked: as for `fetch`.
        home: as for `fetch`.
        to: s3://bucket/prefix.
        say: as for `fetch`.

    Raises:
        UsageError: `to` is no such address.
        DataError: as `fetch`; or there is no such bucket, or there are no credentials.
    """
    if not to.startswith("s3://"):
        raise UsageError(f"{shorten(to)!r} can't be pushed to: give --to s3://bucket/prefix.")
    if find_workload(workload).boxes:
        raise UsageError(
            f"the data of {workload} is files and not pushed: put an archive of the folder at an http(s) address, "
            "and give that with --data."
        )
    data = fetch(workload, asked, home, say)
    push_store(Path(data.path), workload, to, _job(workload, asked, home, say))
    return data


def _job(workload: str, asked: str, home: Path, say: Say) -> Job:
    entry = find_workload(workload)
    if entry.boxes:  # what stands behind their place is read by fetch_boxes
        return Job(entry, asked, Store(home / "data"), say)
    place, given = split_choices(asked, (BANDS, SIZE, SEED), "data without boxes")
    bands, size = chosen_bands(given.get(BANDS)), read_size(given.get(SIZE))
    if bands and size:
        raise UsageError(f"{shorten(asked)!r}: bands are measured values and never resized, so leave out #size=.")
    return Job(entry, place, Store(home / "data"), say, bands=bands, size=size, seed=read_seed(given.get(SEED)))


def _named_store(job: Job, asked: str) -> DataSpec | None:
    """The store whose folder is given as the place, None for other places; raises as `fetch`."""
    place = expanded(job.asked)
    if not (place / META).is_file():
        return None
    if job.seed:
        raise UsageError(
            f"the store {place} was split when it was written: give the folder that it was made of, with "
            f"{SEED}{job.seed} behind it."
        )
    return _chosen_already(open_store(place.resolve(), asked), job)


def _choosable(source: Source, job: Job) -> Source:
    """A source that has what was chosen behind its place; raises UsageError where it has nothing to resize or split."""
    if job.seed and not isinstance(source, Folder | ArchiveUrl | OfficialEurosat):
        raise UsageError(
            f"{SEED} is for images that come without a test of their own, and not for {shorten(job.asked)!r}: leave it "
            "out."
        )
    if job.size and not isinstance(source, Folder | ArchiveUrl):
        raise UsageError(
            f"#size= is for a folder of images, or an archive of one, and not for {shorten(job.asked)!r}: leave it out."
        )
    return source


def _chosen_already(data: DataSpec, job: Job) -> DataSpec:
    """A store's bands and size were chosen when it was written; raises UsageError where others are asked for."""
    meta = read_meta(Path(data.path))
    height, width = meta.files["train_images"].shape[1:3]
    if job.size and job.size != (height, width):
        raise UsageError(
            f"the store {data.path} from {shorten(job.asked)!r} holds images of {width}x{height}: give the folder that "
            "it was made of, with #size= behind it."
        )
    if job.bands and meta.bands != job.bands:
        raise UsageError(
            f"the store {data.path} from {shorten(job.asked)!r} does not hold the bands "
            f"{','.join(map(str, job.bands))}: give the images that it was made of, with #bands= behind them."
        )
    return data


def _official(job: Job) -> Source:
    return OfficialEurosat() if job.workload.name == "eurosat" else Official()


def source_of(job: Job) -> Source:
    """The source that `--data` names.

    Raises:
        UsageError: it is empty or an address of another kind.
    """
    return _choosable(_named_source(job), job)


def _named_source(job: Job) -> Source:
    asked = job.asked
    if asked == "official":
        return _official(job)
    if asked == "synthetic":
        return Synthetic()
    scheme, found, rest = asked.partition("://")
    if not asked or (found and (scheme not in ("s3", "http", "https") or not rest)):
        raise UsageError(
            f"{shorten(asked)!r} is no source of data: give auto, official, synthetic, a folder, or an "
            "address that starts with s3:// or http(s)://."
        )
    if found and scheme != "s3" and is_archive_url(asked):
        return ArchiveUrl(asked)
    return Mirror(asked) if found else Folder(asked)


def _auto_sources(job: Job) -> list[Source]:
    _choosable(_official(job), job)
    mirror = os.environ.get(VARIABLE, "")
    if mirror and not mirror.startswith(("s3://", "http://", "https://")):
        raise UsageError(f"{VARIABLE} is {shorten(mirror)!r}: give an address that starts with s3:// or http(s)://.")
    # What a mirror holds was split when it was pushed.
    return [*([Mirror(mirror)] if mirror and not job.seed else []), _official(job)]


def _with_stand_in(job: Job) -> list[Source]:
    return [*_auto_sources(job), *([] if job.bands or job.seed else [Synthetic()])]


def _auto(job: Job) -> Entry:
    sources = _auto_sources(job)
    for source in sources:
        entry = source.stored(job)
        if entry is not None:
            return entry
    missed = []
    for source in sources:
        try:
            entry = source.fetch(job)
        except UnreachableError as error:
            missed.append(str(error))
            continue
        return replace(entry, notice=" ".join([entry.notice, *missed]).strip())
    if job.bands or job.seed:  # a stand-in has none, and why there is nothing else is what helps
        raise UnreachableError(" ".join(missed))
    entry = Synthetic().fetch(job)
    return replace(entry, notice=" ".join([entry.notice, "The real data could not be had:", *missed]))
