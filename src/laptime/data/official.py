"""The official archives, by torchvision's addresses and checksums."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from laptime.data.archive import check_published, unpack
from laptime.data.disk import partial_folder, room_for
from laptime.data.net import download, shown
from laptime.data.sources import Job, Meter
from laptime.data.store import Entry
from laptime.data.writer import Images, Labels, Plan, publish, writing
from laptime.errors import DataError, shorten

URL_VARIABLE = "LAPTIME_CIFAR10_URL"
# Known without torchvision, whose import takes as long as may be lost where there is no internet.
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
_SIDE = 32
# Twice what CIFAR-10 takes, packed or unpacked.
_SIZE_LIMIT = 2**29


@dataclass(frozen=True)
class Description:
    """An archive in the form of CIFAR-10's.

    Attributes:
        folder: the folder inside the archive.
        train, test: (file, md5) of the batches; a batch is a pickled dict with `data` uint8 [N, 3072] and
            `labels`.
        names: (file, md5) of the class names.
        names_key: key of the class names in their file.
    """

    url: str
    md5: str
    folder: str
    train: tuple[tuple[str, str], ...]
    test: tuple[tuple[str, str], ...]
    names: tuple[str, str]
    names_key: str


def cifar10() -> Description:
    """CIFAR-10 as torchvision describes it; LAPTIME_CIFAR10_URL names another place of the same archive.

    Only the description is torchvision's: its download has no time limit, falls back from https to http,
    leaves partial files behind and unpickles freely.
    """
    from torchvision.datasets import CIFAR10

    return Description(
        url=os.environ.get(URL_VARIABLE) or CIFAR10.url,
        md5=CIFAR10.tgz_md5,
        folder=CIFAR10.base_folder,
        train=tuple((name, md5) for name, md5 in CIFAR10.train_list),
        test=tuple((name, md5) for name, md5 in CIFAR10.test_list),
        names=(CIFAR10.meta["filename"], CIFAR10.meta["md5"]),
        names_key=CIFAR10.meta["key"],
    )


class Official:
    """The official archive of a workload."""

    def __init__(self, description: Description | None = None) -> None:
        self.given = description

    def stored(self, job: Job) -> Entry | None:
        """See Source."""
        return job.store.recall(self._key(job))

    def fetch(self, job: Job) -> Entry:
        """See Source; what is stored was verified once and is not asked for again."""
        before = self.stored(job)
        if before is not None:
            return before
        if job.workload.name != "cifar":
            raise DataError(f"workload {job.workload.name!r} has no official archive here: give a folder with --data.")
        url = self.given.url if self.given else os.environ.get(URL_VARIABLE) or CIFAR10_URL
        job.budget.probe(url)
        description = self.given or cifar10()
        with partial_folder(job.store.root) as folder:
            entry = _load(_get(replace(description, url=url), folder, job), description, job)
        return job.store.remember(self._key(job), entry)

    def _key(self, job: Job) -> str:
        return f"official/{job.workload.name}|{self.given.md5 if self.given else ''}"


def _get(description: Description, folder: Path, job: Job) -> Path:
    archive = folder / "archive.tar.gz"
    with room_for(job.store.root, _SIZE_LIMIT):
        download(description.url, archive, _SIZE_LIMIT, Meter(job.say, "downloading", 0))
    check_published(archive, "md5", description.md5, shown(description.url))
    job.say("unpacking", 0, 0)
    unpack(archive, folder / "unpacked", _SIZE_LIMIT)
    return folder / "unpacked" / description.folder


def _load(batches: Path, description: Description, job: Job) -> Entry:
    names_file, names_md5 = description.names
    names = _unpickle(batches / names_file, names_md5).get(description.names_key)
    if not isinstance(names, list) or len(names) < 2:
        raise DataError(
            f"{names_file} of {shown(description.url)} holds no class names: take the data from another place."
        )
    classes = tuple(str(name) for name in names)
    parts = {
        split: [_batch(batches / name, md5, len(classes)) for name, md5 in files]
        for split, files in (("train", description.train), ("test", description.test))
    }
    counts = [sum(len(labels) for _, labels in part) for part in parts.values()]
    plan = Plan("official", "official", classes, counts[0], counts[1], _SIDE, _SIDE)
    with writing(job.store, plan) as writer:
        for split, part in parts.items():
            for images, labels in part:
                writer.add(split, images, labels)
        meta = publish(job.store, writer, "")
    return Entry(meta.digest, "official")


def _batch(path: Path, md5: str, classes: int) -> tuple[Images, Labels]:
    fields = _unpickle(path, md5)
    data, labels = fields.get("data"), np.asarray(fields.get("labels", ()), dtype=np.int64)
    good = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.shape == (len(labels), 3 * _SIDE * _SIDE)
    if not good or not len(labels) or labels.min() < 0 or labels.max() >= classes:
        raise DataError(
            f"{path.name} of the official archive is not in its known form: take the data from another place."
        )
    images: Images = np.ascontiguousarray(np.asarray(data).reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1))
    return images, labels


def _unpickle(path: Path, md5: str) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"the official archive has no {path.name}: take the data from another place with --data.")
    # MD5 is what the publisher gives; what is unpickled is restricted all the same.
    check_published(path, "md5", md5, path.name)
    with path.open("rb") as file:
        return unpickle(file, path.name)


def unpickle(file: IO[bytes], name: str) -> dict[str, Any]:
    """Reads a pickled dict of numbers, texts and numpy arrays, and nothing else.

    Raises:
        DataError: it asks for anything more, is cut off or is no dict.
    """
    try:
        fields = _Restricted(file, encoding="latin1").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise DataError(f"{name} can't be read ({shorten(str(error))}): take the data from another place.") from error
    if not isinstance(fields, dict):
        raise DataError(f"{name} holds no dict: take the data from another place.")
    return fields


def _dtype(code: Any, align: Any = False, copy: Any = False) -> Any:
    # Python 2 wrote 0 and 1, which numpy >= 2.4 warns about.
    return np.dtype(code, bool(align), bool(copy))


def _encode(text: str, encoding: str) -> bytes:
    return text.encode(encoding)


# The function behind a pickled array, whose module has moved; asked of numpy itself.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in it") from None
