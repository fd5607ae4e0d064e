"""Which images a limit keeps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def limited(labels: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """The indices [n] that a limit of n keeps.

    Shuffled within each class, and the classes in turn by their shares. The first images of all classes come first, so
    that a small n holds every class; a smaller n is a part of a larger one. The order is a property of the labels
    alone, the same for every seed and version of numpy.
    """
    # splitmix64's mixer (Steele, Lea, Flood 2014): numpy's own shuffle may change between versions.
    mixed = (np.arange(1, len(labels) + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    by_class = np.lexsort((mixed, labels))
    counts = np.bincount(labels)
    starts = np.cumsum(counts) - counts
    share = np.empty(len(labels), dtype=np.float64)
    share[by_class] = np.arange(len(labels)) - starts[labels[by_class]]
    share /= counts[labels]
    return np.lexsort((labels, share))[:n].astype(np.int64)
