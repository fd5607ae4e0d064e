"""The workers rule for real: a loader that sleeps and one that computes, without and with a worker, interleaved."""

from __future__ import annotations

import argparse
import sys
import time
from statistics import mean

import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from laptime.advice import signals_of
from laptime.advice.outcome import Abstain, Proposal
from laptime.advice.rules.loading import workers
from laptime.processes import allowed_cores
from laptime.records import EpochRecord, Machine, RunRecord
from laptime.records.breakdown import Breakdown, Quartiles, SetupRecord

_BATCH = 32


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
    """One loader with its own net, and what its steps took so far."""

    def __init__(self, items: Items, count: int) -> None:
        self.loader = DataLoader(items, batch_size=_BATCH, num_workers=count, persistent_workers=count > 0)
        self.workers = count
        self.model = torchvision.models.resnet18(num_classes=10).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=True)
        self.loss = nn.CrossEntropyLoss()
        self.steps: list[tuple[float, float, float, float]] = []

    def epoch(self) -> None:
        """Trains an epoch; its first two steps don't count: one waits for the first batch, one for what it fills."""
        batches = iter(self.loader)
        for number in range(len(self.loader)):
            cpu, begin, own = time.process_time(), time.perf_counter(), time.thread_time()
            images, labels = next(batches)
            fetched, own = time.perf_counter() - begin, time.thread_time() - own
            self.loss(self.model(images), labels).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            step = (time.perf_counter() - begin, fetched, own, time.process_time() - cpu)
            if number > 1:
                self.steps.append(step)

    def record(self, load: float) -> RunRecord:
        """What laptime's worker would have written of these steps."""
        step, data, own, cpu = ([s * 1e3 for s in column] for column in zip(*self.steps, strict=True))
        broken = Breakdown(
            steps=len(step),
            step_ms=Quartiles.of(step),
            compute_ms=Quartiles.of([whole - wait for whole, wait in zip(step, data, strict=True)]),
            parts_ms={"data": Quartiles.of(data)},
            mean_ms={"data": mean(data)},
            fetch_cpu_share=sum(own) / sum(data),
            process_cpu_ms=Quartiles.of(cpu).median,
        )
        count = len(step)
        epoch = EpochRecord(index=0, epoch_s=sum(step) / 1e3, samples=count * _BATCH, steps=count, breakdown=broken)
        setup = SetupRecord(batch_size=_BATCH, loader="items", workers=self.workers)
        machine = Machine(cores=allowed_cores(), load_before=load)
        return RunRecord(status="done", machine=machine, epochs=(epoch,), setup=setup)


def main() -> None:
    """Prints predicted beside measured, as Markdown; the rule is asked whatever the noise, which stands beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--item-ms", type=float, default=0.5)
    asked = parser.parse_args()
    torch.set_num_threads(allowed_cores())
    kinds = {"sleeps": False, "busy": True}
    items = {kind: Items(asked.steps, busy, asked.item_ms / 1e3) for kind, busy in kinds.items()}
    sides = {(kind, n): Side(items[kind], n) for kind in kinds for n in (0, 1)}
    for side in sides.values():
        side.epoch()
        side.steps.clear()
    for turn in range(asked.rounds):
        for side in list(sides.values())[:: -1 if turn % 2 else 1]:
            side.epoch()
    sys.stdout.write(
        "| loader | without a worker, ms | fetch's CPU share | CPU, ms | predicted | one worker, ms | off by |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    for kind in kinds:
        before, after = (sides[kind, n].record(0.0) for n in (0, 1))
        sys.stdout.write(_line(kind, before, after))


def _line(kind: str, before: RunRecord, after: RunRecord) -> str:
    signals, now, then = signals_of(before), before.epochs[0].breakdown, signals_of(after).step_ms
    assert now is not None
    assert signals.step_ms is not None
    assert then is not None
    outcome = workers(signals)
    said, off = "no advice", "–"
    if isinstance(outcome, Proposal):
        high, low = (signals.step_ms - gain for gain in outcome.gain_ms)
        said, off = f"{low:.1f} to {high:.1f}", f"{((low + high) / 2 / then - 1):+.1%}"
    elif isinstance(outcome, Abstain):
        said += f": {outcome.reason}"
    return (
        f"| {kind} | {signals.step_ms:.1f} ({signals.wait_ms:.1f} of data; {now.step_ms.low:.1f} to "
        f"{now.step_ms.high:.1f}) | {now.fetch_cpu_share:.2f} | {now.process_cpu_ms:.1f} | {said} | {then:.1f} | "
        f"{off} |\n"
    )


if __name__ == "__main__":
    main()
