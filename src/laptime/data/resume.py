"""Downloads that go on where an earlier one stopped: a folder that outlives the process, and which version it holds."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from laptime.data.disk import partial_folder
from laptime.errors import UnreachableError

PREFIX = ".resume-"
KEPT = "What has arrived is kept: the same command goes on from there."
_TAG = ".etag"
_STALE_S = 7 * 86400.0


@contextmanager
def resumable_folder(root: Path, digest: str) -> Iterator[Path]:
    """The folder of a download by digest, with what an earlier one left in it.

    It stays where the download can go on (nobody answers any more, Ctrl-C, a kill), is gone after any other error, and
    is the caller's to rename when all is there. Where another process is at the same download, this one gets a folder
    of its own.

    Raises:
        DataError: `root` can't be made or written to.
    """
    folder = root / f"{PREFIX}{digest[:32]}"
    held = _hold(folder)
    if held is None:
        with partial_folder(root) as own:
            yield own
        return
    try:
        with going_on(KEPT):
            yield folder
    except (UnreachableError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        _remove(folder, held)
        raise
    else:
        _remove(folder, held)  # it was renamed, unless another process brought the same data first
    finally:
        os.close(held)


@contextmanager
def going_on(kept: str) -> Iterator[None]:
    """Says what is kept when the block breaks off: in the sentence of an error, as a note of an interruption."""
    try:
        yield
    except UnreachableError as error:
        raise UnreachableError(f"{error} {kept}") from error
    except (KeyboardInterrupt, SystemExit) as error:
        error.add_note(kept)
        raise


def _remove(folder: Path, held: int) -> None:
    with suppress(OSError):
        if os.path.samestat(os.fstat(held), folder.stat()):
            shutil.rmtree(folder)


def _hold(folder: Path) -> int | None:
    """Locks a folder, made where it is missing; None where another process has it or the file system has no locks."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have finished and renamed it in between.
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        except OSError:
            pass
        os.close(descriptor)
    return None


def sweep_kept(root: Path) -> None:
    """Removes what nobody went on with for a week."""
    for folder in root.glob(f"{PREFIX}*"):
        try:
            newest = max((p.stat().st_mtime for p in (folder, *folder.glob("*"))), default=0.0)
        except FileNotFoundError:  # its process has just finished with it
            continue
        if time.time() - newest > _STALE_S and (held := _hold(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


def kept_bytes(to: Path, size: int, tag: str | None = None) -> int:
    """Bytes that an interrupted download left of a file, 0 where there are none or too many.

    Args:
        to: the file.
        size: of the whole.
        tag: the version that the server has now; without it, whatever version is there counts.
    """
    known = noted_tag(to)
    if not known or (tag is not None and known != tag):
        return 0
    with suppress(OSError):
        found = to.stat().st_size
        return found if found <= size else 0
    return 0


def noted_tag(to: Path) -> str:
    """The version that a file is of: its ETag or date as the server gave it; empty where that is not known."""
    try:
        return to.with_name(to.name + _TAG).read_text(encoding="utf-8")
    except OSError:
        return ""


def note_tag(to: Path, tag: str) -> None:
    """Notes the version of a file before its first byte."""
    to.with_name(to.name + _TAG).write_text(tag, encoding="utf-8")


def drop_tags(folder: Path) -> None:
    """Removes the notes, once all is there."""
    for path in folder.glob(f"*{_TAG}"):
        path.unlink()
