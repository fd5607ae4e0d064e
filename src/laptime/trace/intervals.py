"""Stretches of time: lists of (begin, end), microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

Span = tuple[float, float]


def merge(spans: Iterable[Span], begin: float = float("-inf"), end: float = float("inf")) -> list[Span]:
    """The union, sorted and without overlaps, within [begin, end]."""
    merged: list[Span] = []
    last = begin
    for low, until in sorted(spans):
        if low >= end:
            break
        high = min(until, end)
        if high <= last:
            continue
        if merged and low <= last:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((max(low, begin), high))
        last = high
    return merged


def length(spans: Iterable[Span]) -> float:
    return sum(high - low for low, high in spans)


def gaps(spans: list[Span], begin: float, end: float) -> list[Span]:
    """What merged spans leave of [begin, end]."""
    edges = [(begin, begin), *merge(spans, begin, end), (end, end)]
    return [(high, low) for (_, high), (low, _) in pairwise(edges) if low > high]


def subtract(spans: list[Span], others: list[Span]) -> list[Span]:
    """What is in merged `spans` and in none of merged `others`."""
    left: list[Span] = []
    at = 0
    for begin, end in spans:
        while at < len(others) and others[at][1] <= begin:
            at += 1
        free, here = begin, at
        while here < len(others) and others[here][0] < end:
            low, high = others[here]
            if low > free:
                left.append((free, low))
            free = max(free, high)
            here += 1
        if free < end:
            left.append((free, end))
    return left
