"""Images of a user's folders, decoded once: what comes before any transform, random or not."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset

from laptime.values.draws import State, drawn, put_back_drawn
from laptime.values.trees import leaves

# Read to see what a loader gives, and how much memory it takes.
_FEW = 8
_MORE = "its transforms make other items of an image in memory: they ask for its file (its name or format, draft())"
# What an image of a few kilobytes takes beside its pixels: Pillow's and Python's objects, its path.
OBJECT_BYTES = 2048


class KeptImages:
    """A folder's loader that has the images of some files in memory, and hands out copies of them."""

    def __init__(self, loader: Callable[[str], Any], kept: dict[str, Any]) -> None:
        self.loader, self.kept = loader, kept

    def __call__(self, path: str) -> Any:
        """The image of a file; a copy, since a transform may draw on it in place."""
        image = self.kept.get(path)
        return self.loader(path) if image is None else image.copy()

    def __getstate__(self) -> dict[str, Any]:
        # A worker that is not forked reads its files: each would get a copy of all images.
        return {"loader": self.loader, "kept": {}}


def is_folder(dataset: Any) -> bool:
    """Whether a data set has files and a loader of them, as torchvision's ImageFolder has."""
    listed = getattr(dataset, "samples", None)
    if not callable(getattr(dataset, "loader", None)) or not isinstance(listed, list) or not listed:
        return False
    return isinstance(listed[0], tuple | list) and bool(listed[0]) and isinstance(listed[0][0], str)


def inner(dataset: Any) -> dict[str, Any]:
    """The data sets that one takes its items from, by the attributes that hold them."""
    if not hasattr(dataset, "__dict__") or is_folder(dataset):
        return {}
    return {name: held for name, held in vars(dataset).items() if isinstance(held, Dataset)}


def paths_of(dataset: Any, chosen: Iterable[int] | None = None) -> Iterator[str]:
    """The files of a data set's folders.

    Args:
        dataset: a folder, or one around some.
        chosen: the items that are asked for, where the data set is known to pass them on; None for all.
    """
    if is_folder(dataset):
        listed = dataset.samples
        yield from (listed[i][0] for i in chosen) if chosen is not None else (path for path, *_ in listed)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from paths_of(part)
    elif isinstance(dataset, Subset):
        own = dataset.indices if chosen is None else [dataset.indices[i] for i in chosen]
        yield from paths_of(dataset.dataset, own)
    else:
        for held in inner(dataset).values():
            # One around another of the same length passes its numbers on.
            yield from paths_of(held, chosen if len(held) == len(dataset) else None)


def swapped(dataset: Any, kept: dict[str, Any]) -> Any:
    """A copy of a data set whose folders take their images out of memory; the user's own stays as it is."""
    if is_folder(dataset):
        found = copy.copy(dataset)
        found.loader = KeptImages(dataset.loader, kept)
        return found
    found = copy.copy(dataset)
    if isinstance(dataset, ConcatDataset):
        found.datasets = [swapped(part, kept) for part in dataset.datasets]
    for name, held in inner(dataset).items():
        setattr(found, name, swapped(held, kept))
    return found


def loaders_of(dataset: Any) -> Iterator[Callable[[str], Any]]:
    """The loaders of a data set's folders."""
    if is_folder(dataset):
        yield dataset.loader
    for part in dataset.datasets if isinstance(dataset, ConcatDataset) else inner(dataset).values():
        yield from loaders_of(part)


def loader_of(dataset: Any) -> Callable[[str], Any] | None:
    """The loader of all of a data set's folders; None where it has none or several, or holds itself."""
    try:
        found = list(loaders_of(dataset))
    except RecursionError:
        return None
    return found[0] if found and all(loader is found[0] for loader in found) else None


def bytes_of(image: Any) -> int | None:
    """Bytes of a decoded image, of PIL or an array; None of anything else, which can't be kept."""
    if isinstance(image, np.ndarray):
        return image.nbytes
    return image.width * image.height * _pixel_bytes(image.mode) if isinstance(image, Image.Image) else None


def _pixel_bytes(mode: str) -> int:
    """What Pillow keeps a pixel in: four bytes wherever there are several bands, of RGB's three too."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


def few_of(paths: list[str]) -> list[str]:
    """Some files from all over a list."""
    return paths[:: max(1, len(paths) // _FEW)][:_FEW]


def refusal(dataset: Any) -> str | None:
    """Why a data set's images can't be kept decoded; None where they can."""
    loader = loader_of(dataset)
    if loader is None:
        return "its training data have no files with one loader, as torchvision's ImageFolder has"
    try:
        swapped(dataset, {})
        paths = few_of(list(paths_of(dataset)))
    except Exception as error:  # whatever a user's class raises that is copied or asked for its length
        return f"its training data can't be copied with another loader ({type(error).__name__})"
    for path in paths:
        try:
            image, again = loader(path), loader(path)
        except Exception as error:  # an item would raise it again
            return f"its loader can't read {Path(path).name} by itself: {type(error).__name__}"
        if bytes_of(image) is None:
            return f"its loader gives a {type(image).__name__}, and images of PIL or arrays are what can be kept"
        if not np.array_equal(np.asarray(image), np.asarray(again)):
            return "its loader gives another image when it reads a file again"
    return _unlike(dataset, loader)


class _ReadAnew(dict[str, Any]):
    """Images as `decoded` would have kept them, each read when it is asked for."""

    def __init__(self, loader: Callable[[str], Any]) -> None:
        self.loader = loader

    def get(self, path: str, default: Any = None) -> Any:
        """The image of a file, whatever is kept."""
        return self.loader(path)


def _unlike(dataset: Any, loader: Callable[[str], Any]) -> str | None:
    """Why items of kept images are others than those of files, with the same random numbers; None where they aren't.

    A copy of an image has its pixels, and neither the name and the format of its file nor what reads it smaller.
    """
    kept, begin = swapped(dataset, _ReadAnew(loader)), drawn()
    try:
        for index in dict.fromkeys((0, len(dataset) - 1)):
            item, again = (_drawing(dataset, index, begin) for _ in range(2))
            try:
                other = _drawing(kept, index, begin)
            except Exception as error:  # an attribute that it has no more
                return f"{_MORE} ({type(error).__name__}: {error})"
            if _alike(item, again) and not _alike(item, other):
                return _MORE
    except Exception:  # whatever a user's code raises, sometimes: it was read before
        return None
    finally:
        put_back_drawn(begin)
    return None


def _drawing(dataset: Any, index: int, begin: State) -> Any:
    """An item that draws from given places on."""
    put_back_drawn(begin)
    return dataset[index]


def _alike(one: Any, other: Any) -> bool:
    """Whether two items hold the same tensors, images and arrays."""
    here, there = list(leaves(one)), list(leaves(other))
    same = (np.array_equal(a, b) for a, b in zip(here, there, strict=False) if bytes_of(a) or isinstance(a, Tensor))
    return len(here) == len(there) and all(same)


def share_of(dataset: Any) -> float | None:
    """Which share of the time of an item its file takes, by a few; what reading them draws is put back.

    Returns:
        None of a data set whose images can't be kept, or are already.
    """
    loader, kept = loader_of(dataset), drawn()
    if loader is None or isinstance(loader, KeptImages) or refusal(dataset) is not None:
        return None
    places = range(0, len(dataset), max(1, len(dataset) // _FEW))[:_FEW]
    paths = few_of(list(paths_of(dataset)))
    try:
        items = _seconds(dataset.__getitem__, places) / max(1, len(places))
        files = _seconds(loader, paths) / max(1, len(paths))
    finally:
        put_back_drawn(kept)
    return min(1.0, files / items) if items > 0 else None


def _seconds(read: Callable[[Any], Any], these: Iterable[Any]) -> float:
    """What reading takes the second time, when files are in the system's cache."""
    for _ in range(2):
        begin = time.perf_counter()
        for one in these:
            read(one)
    return time.perf_counter() - begin


def needed_bytes(dataset: Any) -> int:
    """Bytes of all its images, by those of a few."""
    loader, paths = loader_of(dataset), sorted(set(paths_of(dataset)))
    sizes = [bytes_of(loader(path)) or 0 for path in few_of(paths)] if loader is not None else []
    return len(paths) * (OBJECT_BYTES + sum(sizes) // max(1, len(sizes)))


def decoded(dataset: Any, threads: int | None = None) -> Any:
    """A copy of a data set that has the images of its folders in memory.

    Args:
        dataset: one with a folder, see `is_folder`.
        threads: that read at a time, since decoders let others run beside them; default: some more than the cores.
    """
    loader, paths = loader_of(dataset), sorted(set(paths_of(dataset)))
    if loader is None:
        return dataset
    with ThreadPoolExecutor(threads) as pool:
        return swapped(dataset, dict(zip(paths, pool.map(loader, paths), strict=True)))
