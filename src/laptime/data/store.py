"""The local store: `<LAPTIME_HOME>/data/<digest>/` by content, and an index from sources to digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from laptime.data.disk import sync_folder
from laptime.data.meta import Sha256, StoreMeta, read_meta, verify_folder
from laptime.errors import DataError, UnreachableError, without_secrets
from laptime.parsing import parse_json
from laptime.records import write_json
from laptime.spec import DataKind, DataSpec

INDEX_SCHEMA = "laptime.data-index/1"


@dataclass(frozen=True)
class Entry:
    """What the index knows of a source.

    Attributes:
        digest: the store that its data stands in.
        kind: the kind of source; a store may be reached from several, so its own kind is not the last word.
        notice: what the user must know about the data from this source.
        stamp: what told the source's state when it was fetched (an ETag, a mirror's digest), empty where the
            key does.
    """

    digest: Sha256
    kind: DataKind
    notice: str = ""
    stamp: str = ""

    def in_spite_of(self, error: UnreachableError) -> Entry:
        """What was fetched earlier, where its source does not answer now."""
        return replace(self, notice=f"{self.notice} {error} The copy fetched earlier is used.".strip())


_ENTRY = TypeAdapter(Entry)


def open_store(folder: Path, asked: str, entry: Entry | None = None) -> DataSpec:
    """Opens a store, wherever it stands, checking it cheaply, as the data of a run.

    Args:
        folder: the store.
        asked: what the user asked for; an address is kept without its password and signature.
        entry: what the index knows of the source; without one, the store speaks for itself.

    Raises:
        DataError: the store is damaged or of another schema.
    """
    meta = read_meta(folder)
    return DataSpec(
        asked=without_secrets(asked),
        kind=entry.kind if entry else meta.kind,
        digest=meta.digest,
        path=str(folder),
        classes=meta.classes,
        train_count=meta.train_count,
        test_count=meta.test_count,
        commonest=_commonest(folder),
        notice=entry.notice if entry else meta.notice,
    )


def _commonest(folder: Path) -> float:
    """Share of the test samples that the largest class has: who knows that alone is right so often."""
    labels = np.load(folder / "test_labels.npy", mmap_mode="r")
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels)) if len(labels) else 0.0


class Store:
    """The stores of one LAPTIME_HOME."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, digest: str) -> Path:
        """The folder of a store, whether or not it exists."""
        return self.root / digest

    def recall(self, key: str) -> Entry | None:
        """What the index holds for a source's key; None where the store is gone or the entry damaged."""
        try:
            fields = parse_json(self._index(key).read_bytes())
            if fields.pop("schema") != INDEX_SCHEMA or fields.pop("key") != without_secrets(key):
                return None
            entry = _ENTRY.validate_python(fields)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return entry if self.folder(entry.digest).is_dir() else None

    def remember(self, key: str, entry: Entry) -> Entry:
        """Writes an index entry; returns it."""
        write_json(self._index(key), {"schema": INDEX_SCHEMA, "key": without_secrets(key), **asdict(entry)})
        return entry

    def _index(self, key: str) -> Path:
        return self.root / "index" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

    def spec(self, entry: Entry, asked: str) -> DataSpec:
        """Opens the store of an entry; raises what `open_store` does."""
        return open_store(self.folder(entry.digest), asked, entry)

    def verify(self, digest: str) -> StoreMeta:
        """Checks every byte of a store; raises DataError naming what is wrong."""
        meta = verify_folder(self.folder(digest))
        if meta.digest != digest:
            folder = self.folder(digest)
            raise DataError(
                f"{folder} holds the data of digest {meta.digest[:12]}: delete {folder} and fetch the data again."
            )
        return meta

    def adopt(self, partial: Path, digest: str, read: Callable[[Path], object] = read_meta) -> None:
        """Renames a finished folder into its place; where another process was first, its store is kept.

        Args:
            partial: the finished folder.
            digest: of its content.
            read: reads what such a store says about itself, and raises where it is damaged.

        Raises:
            DataError: what stands in the place already is damaged.
        """
        target = self.folder(digest)
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            read(target)
            return
        sync_folder(self.root)
