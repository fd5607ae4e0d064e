"""Times a loop over epochs that is not laptime's, and writes the record that `laptime gate` and `compare` read."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from laptime.host.turns import by_turns

T = TypeVar("T")

_SCHEMA = "laptime.record/1"
# Names a gate's own side's checkout and, behind it, others, from which nothing should be imported.
CHECKOUTS = "LAPTIME_CHECKOUTS"
_MOST_NAMED = 3
_ENVIRONMENT = {"site-packages", "dist-packages"}


def epochs(
    loop: Iterable[T],
    record: str | Path | None = None,
    samples: int = 0,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[T]:
    """Wraps a loop over epochs: `for epoch in laptime.epochs(range(4), samples=50_000): ...`.

    The body of the loop is what is timed, so evaluate outside of it or in every epoch alike. The clock waits for the
    GPU at an epoch's ends, where torch is loaded and CUDA in use, and nowhere inside. An epoch that is left by `break`
    is not recorded. Where the gate has another training take turns with this one, each kept epoch waits for its own.

    Args:
        loop: what is looped over.
        record: the file; default LAPTIME_RECORD, which the gate sets, else record.json here.
        samples: samples of one epoch; both sides of a gate must have the same.
        warmup: epochs at the start that are written down but not kept.
        clock: seconds.
    """
    path = Path(record or os.environ.get("LAPTIME_RECORD") or "record.json")
    done: list[dict[str, object]] = []
    elsewhere: list[str] = []
    started_at = time.time()
    if not isinstance(loop, Iterable):
        raise TypeError(f"laptime.epochs({loop!r}): give what a for loop takes, range({loop!r}) for so many epochs.")
    items = iter(loop)
    for index, item in enumerate(itertools.chain(itertools.islice(items, warmup), by_turns(items))):
        _wait()
        begin = clock()
        yield item
        _wait()
        seconds = clock() - begin
        done.append({"index": index, "kept": index >= warmup, "epoch_s": seconds, "samples": samples})
        body = {"schema": _SCHEMA, "status": "done", "epochs": done, "started_at": started_at, "ended_at": time.time()}
        elsewhere = elsewhere if index else _imported_elsewhere()
        _write(path, body | ({"imported_elsewhere": elsewhere} if elsewhere else {}))


def _imported_elsewhere() -> list[str]:
    """Some files of modules that came from another checkout, as those of `pip install -e` do; none outside a gate."""
    own, *others = os.environ.get(CHECKOUTS, "").split(os.pathsep)
    if not others:
        return []

    def lies_in(file: str, *folders: str) -> bool:
        return any(file.startswith(f"{folder}{os.sep}") for folder in folders)

    def installed(file: str) -> bool:  # in an environment, which may stand in a checkout
        return not _ENVIRONMENT.isdisjoint(Path(file).parts)

    standard = str(Path(os.__file__).parent)
    # What stands in its dictionary: to ask a module that is loaded late for its file would load it.
    told = [getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values())]
    files = {os.path.realpath(file) for file in told if isinstance(file, str)}
    found = (f for f in files if lies_in(f, *others) and not lies_in(f, own, standard) and not installed(f))
    return sorted(found)[:_MOST_NAMED]


def _wait() -> None:
    """Waits for the GPU; a loop without torch pays nothing.

    Whether there is one is not asked: by that alone a process loses the power to fork children that use it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()  # waits for the device


def _write(path: Path, body: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(body) + "\n", encoding="utf-8")
    part.replace(path)
