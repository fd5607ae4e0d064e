"""Advice on workers for real: a loader that sleeps and one that computes, without and with a worker, interleaved.

Exits with 1 where the middle of what is predicted for the sleeping loader is off by more than a tenth, or is not
predicted, and where workers are advised for the busy one.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import mean, median

import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from laptime.advice import advise
from laptime.advice.sources import signals_of
from laptime.compare.statistics import Estimate, mean_ratio
from laptime.host.processes import allowed_cores
from laptime.measure.machine import machine
from laptime.records import Advice, EpochRecord, Finding, RunRecord
from laptime.records.breakdown import Breakdown, Quartiles, SetupRecord

_BATCH = 32
_MOST_OFF = 0.10
# What a fetch costs by default: half a millisecond, or on a slow machine the share of a step that this was where it
# was chosen (17 of 57 ms), since a wait that is lost in the noise tells the two loaders apart on no machine.
_LEAST_ITEM_MS, _WAIT_SHARE = 0.5, 0.3

Step = tuple[float, float, float, float]


class Items(Dataset[tuple[Tensor, int]]):
    """Ready images, each of which costs a wait or a computation before it is handed out."""

    def __init__(self, steps: int, busy: bool, item_s: float) -> None:
        self.images = torch.rand(_BATCH, 3, 32, 32)
        self.steps, self.busy, self.item_s = steps, busy, item_s

    def __len__(self) -> int:
        return self.steps * _BATCH

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        end = time.perf_counter() + self.item_s
        if self.busy:
            while time.perf_counter() < end:
                pass
        else:
            time.sleep(self.item_s)
        return self.images[index % _BATCH], index % 10


class Side:
    """One loader with its own net, and what its steps took so far, epoch by epoch."""

    def __init__(self, items: Items, count: int) -> None:
        self.loader = DataLoader(items, batch_size=_BATCH, num_workers=count, persistent_workers=count > 0)
        self.workers = count
        self.model = torchvision.models.resnet18(num_classes=10).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=True)
        self.loss = nn.CrossEntropyLoss()
        self.epochs: list[list[Step]] = []

    def epoch(self) -> None:
        """Trains an epoch; its first two steps don't count: one waits for the first batch, one for what it fills."""
        batches, steps = iter(self.loader), []
        for number in range(len(self.loader)):
            cpu, begin, own = time.process_time(), time.perf_counter(), time.thread_time()
            images, labels = next(batches)
            fetched, own = time.perf_counter() - begin, time.thread_time() - own
            self.loss(self.model(images), labels).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            step = (time.perf_counter() - begin, fetched, own, time.process_time() - cpu)
            if number > 1:
                steps.append(step)
        self.epochs.append(steps)

    def record(self) -> RunRecord:
        """What laptime's worker would have written; an epoch's quartiles tell the noise."""
        epochs = tuple(_epoch(index, steps) for index, steps in enumerate(self.epochs))
        setup = SetupRecord(batch_size=_BATCH, loader="items", workers=self.workers, optimizer_kernel="fused")
        return RunRecord(status="done", machine=machine(), epochs=epochs, setup=setup)


def _epoch(index: int, steps: list[Step]) -> EpochRecord:
    step, data, own, cpu = ([s * 1e3 for s in column] for column in zip(*steps, strict=True))
    broken = Breakdown(
        steps=len(step),
        step_ms=Quartiles.of(step),
        compute_ms=Quartiles.of([whole - wait for whole, wait in zip(step, data, strict=True)]),
        parts_ms={"data": Quartiles.of(data)},
        mean_ms={"data": mean(data)},
        fetch_cpu_share=sum(own) / sum(data),
        process_cpu_ms=Quartiles.of(cpu).median,
    )
    seconds, samples = sum(step) / 1e3, len(step) * _BATCH
    return EpochRecord(index=index, epoch_s=seconds, samples=samples, steps=len(step), breakdown=broken)


def main() -> int:
    """Prints predicted beside measured, as Markdown, and below it what the advice as a whole says."""
    parser = argparse.ArgumentParser(prog="scripts/bench advice", description=__doc__)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument(
        "--item-ms", type=float, help="what an item costs; default 30 %% of a step, at least 0.5 an item"
    )
    asked = parser.parse_args()
    machine()  # before this has made any load
    torch.set_num_threads(allowed_cores())
    item_ms = asked.item_ms or _item_ms()
    sys.stdout.write(f"An item costs {item_ms:.2f} ms, a batch of {_BATCH} {item_ms * _BATCH:.1f} ms.\n\n")
    kinds = {"sleeps": False, "busy": True}
    items = {kind: Items(asked.steps, busy, item_ms / 1e3) for kind, busy in kinds.items()}
    sides = {(kind, n): Side(items[kind], n) for kind in kinds for n in (0, 1)}
    for side in sides.values():
        side.epoch()
        side.epochs.clear()
    for turn in range(asked.rounds):
        for side in list(sides.values())[:: -1 if turn % 2 else 1]:
            side.epoch()
    pairs = {kind: (sides[kind, 0].record(), sides[kind, 1].record()) for kind in kinds}
    return report(pairs)


def _item_ms() -> float:
    side = Side(Items(steps=8, busy=False, item_s=0.0), 0)
    side.epoch()
    step_ms = median(step for step, *_ in side.epochs[0]) * 1e3
    return max(_LEAST_ITEM_MS, step_ms * _WAIT_SHARE / (1 - _WAIT_SHARE) / _BATCH)


def report(pairs: dict[str, tuple[RunRecord, RunRecord]]) -> int:
    """Writes the table of records without and with a worker, by kind of loader, and gives the exit code."""
    lines = [
        "| loader | no worker, ms | fetch's CPU share | CPU, ms | with one, advised | measured (95 %) | off by |",
        "|---|---|---|---|---|---|---|",
    ]
    said: list[str] = []
    off: dict[str, float | None] = {}
    for kind, (before, after) in pairs.items():
        given = advise(before)
        found = next((f for f in given.findings if f.rule == "workers"), None)
        measured = _measured(before, after)
        off[kind] = _off(found, measured)
        lines.append(_line(kind, (before, measured), found, off[kind]))
        said += ["", f"{kind}: {given.verdict}", *(f"- {reason}" for reason in _withheld(given))]
    sys.stdout.write("\n".join([*lines, *said]) + "\n")
    sleeps, busy = off["sleeps"], off["busy"]
    return 0 if sleeps is not None and abs(sleeps) <= _MOST_OFF and busy is None else 1


def _off(found: Finding | None, measured: Estimate) -> float | None:
    """How far the middle of the step that is promised is off; None without a promise."""
    return None if found is None else sum(found.step_ms_expected) / 2 / found.step_ms_now / measured.point - 1


def _measured(before: RunRecord, after: RunRecord) -> Estimate:
    """A worker's step over that without one, by epochs that followed each other: minutes differ by a fifth and more."""
    pairs = zip(_epochs_ms(before), _epochs_ms(after), strict=True)
    return mean_ratio([late / early for early, late in pairs])


def _epochs_ms(record: RunRecord) -> list[float]:
    return [_step_ms(record.model_copy(update={"epochs": (epoch,)})) for epoch in record.epochs]


def _step_ms(record: RunRecord) -> float:
    """A step as advice takes it, which is what its promise is of."""
    return signals_of(record).step_ms or 0.0


def _withheld(given: Advice) -> list[str]:
    """Why nothing is said of workers, and with what noise; empty where something is."""
    noise = "not known" if given.noise is None else f"{given.noise:.1%}"
    return [f"workers withheld: {w.reason} (noise {noise})" for w in given.withheld if w.id == "workers"]


def _line(kind: str, pair: tuple[RunRecord, Estimate], found: Finding | None, off: float | None) -> str:
    before, measured = pair
    said, shown = "no", "–"
    if found is not None and off is not None:
        low, high = found.step_ms_expected
        said, shown = f"{low / found.step_ms_now:.2f} to {high / found.step_ms_now:.2f}", f"{off:+.1%}"
    shares = [e.breakdown.fetch_cpu_share or 0.0 for e in before.epochs if e.breakdown]
    cpu = [e.breakdown.process_cpu_ms or 0.0 for e in before.epochs if e.breakdown]
    step = f"{_step_ms(before):.1f} ({signals_of(before).wait_ms or 0.0:.1f} of data)"
    took = f"{measured.point:.2f}" + ("" if measured.low is None else f" ({measured.low:.2f} to {measured.high:.2f})")
    return f"| {kind} | {step} | {median(shares):.2f} | {median(cpu):.1f} | {said} | {took} | {shown} |"


if __name__ == "__main__":
    sys.exit(main())
