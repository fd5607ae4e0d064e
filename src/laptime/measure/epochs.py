"""Warm-up epochs, a reset, counted epochs: each timed from its first fetch to the end of its last step."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from laptime.data.own.opened import OwnData
from laptime.engine.evaluate import evaluate, totals
from laptime.engine.kept import Kept
from laptime.engine.loop import drive
from laptime.engine.reset import copy_known, reset, snapshot, tensors
from laptime.errors import RunError
from laptime.measure.anew import Anew, WarmUp
from laptime.measure.breakdown import Ending, break_down, middle_step_ms
from laptime.measure.compiling import CompileWatch
from laptime.measure.device_marks import device_marks
from laptime.measure.diverged import diverged
from laptime.measure.loader_workers import cpu_s_by_worker, spent_s
from laptime.measure.marks import StepMarks
from laptime.measure.memory import peak_mib, reset_peak
from laptime.measure.pauses import Held, watched_pauses
from laptime.measure.ranks_apart import ranks_apart
from laptime.measure.syncs import count_syncs
from laptime.optimizations.base import Parts, Recipe, batches, shares
from laptime.optimizations.data import settle
from laptime.optimizations.samples import read
from laptime.records import EpochRecord
from laptime.values.draws import draw_apart
from laptime.values.strides import out_of_order
from laptime.values.trees import cut, undivided
from laptime.workloads.base import Batch, Counts

Progress = Callable[[int, int, int], None]
"""Called after each step with epoch (-1 in warm-up), steps done and steps of the epoch."""


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    epochs: int
    warmup_epochs: int
    warmup_steps: int | None


class Session:
    """A built run on its way through its epochs."""

    def __init__(self, parts: Parts, recipe: Recipe, marks: StepMarks, progress: Progress) -> None:
        self.parts, self.recipe, self.marks, self.progress = parts, recipe, marks, progress
        self.marks.device = device_marks(parts.device)
        self.train_s = 0.0
        self.watch: CompileWatch | None = None
        self.syncs: int | None = None
        self.before: dict[str, float] = {}
        self.told: tuple[str, ...] = ()  # what goes on from the warm-up, and what ranks have each of their own
        self.cached = False  # whether an evaluation has left its memory in a GPU's allocator

    def warm_up(self, plan: Plan, looks: bool = False) -> float:
        """Runs the warm-up epochs and puts all state back; returns their seconds. Before them looks at the quality.

        A shortened warm-up still runs the epoch's last, smaller batch, which is a shape of its own. Images that grow
        with the epochs are met in all their sizes, and so are steps on a part of the batch.
        What is recorded at a later call than the first (CUDA graphs) gets as many calls in each shape.
        """
        saved = snapshot(self.parts)
        if looks:
            self.before = self._quality()
            with torch.no_grad():  # a flow fits itself to the first batch that it meets
                copy_known(tensors(self.parts), saved)
        begin, anew = time.perf_counter(), Anew(self.parts, self.recipe, saved)
        if plan.warmup_epochs:
            self._meet_evaluation()
        whole, calls = len(self.parts.loader), self.recipe.warmup_calls
        steps = min(plan.warmup_steps or whole, whole)
        for epoch in range(plan.warmup_epochs):
            drive(self.parts, epoch, WarmUp(self.progress, steps, anew), steps)
        if plan.warmup_epochs:
            if steps < whole or calls > 1:
                self._shapes(0, calls - 1, calls)
            self._other_kinds(calls)
            self._count_syncs()
            settle(self.parts.loader)  # the first counted epoch would wait for its workers' leftovers
        self.wait()
        seconds = time.perf_counter() - begin
        if self.recipe.optimizer_options.get("fused") and (odd := out_of_order(self.parts.optimizer)):
            raise RunError(f"{odd}, or leave fused-optimizer out.")
        apart = ranks_apart(self.parts, self.recipe) if plan.warmup_epochs else ()
        self.told = (*anew.settled(), *apart)
        reset(self.parts, self.recipe, saved)
        gc.collect()  # what the set-up has made: the collector would go through it in one of the first epochs
        return seconds

    def _meet_evaluation(self) -> None:
        """Evaluates once on a GPU, before anything else, and gives the memory back.

        cuDNN's benchmark empties the allocator's cache at each new shape: the second counted epoch would pay for all
        memory again. And what the evaluation leaves there would count as training's.
        """
        if (self.recipe.evaluate_on or self.parts.device).type == "cuda":
            self._evaluated()
            self._give_back()

    def counted(self, plan: Plan, first: int = 0) -> Iterator[EpochRecord]:
        """Yields the counted epochs one by one from the first one that is still to be run, each evaluated."""
        for index in range(first, plan.epochs):
            yield self._epoch(index)

    def _epoch(self, index: int) -> EpochRecord:
        parts, world = self.parts, self.recipe.world
        compiled = self.watch.events if self.watch else 0
        reset_peak(parts.device)
        fetching = cpu_s_by_worker()
        draw_apart(self.recipe.seed, index, world.rank)
        self.wait()
        world.barrier()
        with contextlib.ExitStack() as stack:
            lap = _Counted(self, index, stack)
            drive(parts, index, lap)
        fetched_s = spent_s(fetching, cpu_s_by_worker())
        ranks_s = world.gathered(lap.own_s)
        epoch_s = max(ranks_s)
        peak = self._peak()
        self.train_s += epoch_s
        train_loss, train_accuracy, samples = totals(lap.counts, world)
        if not math.isfinite(train_loss):
            raise RunError(diverged(train_loss, index, lap.counts, self.recipe))
        begin = time.perf_counter()
        for module in dict.fromkeys((parts.model, parts.evaluated)):
            world.same(module, parameters=False)  # each rank has BatchNorm statistics of its own; rank 0's are saved
        tested = self._evaluated()
        test_loss, test_accuracy, _ = totals([tested], world)
        evaluate_s = time.perf_counter() - begin
        marked = self.marks.times()
        ending = None if lap.drain_s is None else Ending(lap.own_s, lap.drain_s)
        ranks = world.collected(break_down(marked, lap.held, ending, fetched_s))
        split = marked.parts_s()
        late = self.watch.events - compiled if self.watch else 0
        return EpochRecord(
            index=index,
            kept=not late,
            compilations=late,
            epoch_s=epoch_s,
            ranks_s=ranks_s if world.size > 1 else (),
            skew_s=max(ranks_s) - min(ranks_s) if world.size > 1 else None,
            samples=samples,
            steps=len(parts.loader),
            samples_per_s=samples / epoch_s,
            train_loss=train_loss,
            train_accuracy=train_accuracy,
            test_loss=test_loss if math.isfinite(test_loss) else None,
            test_accuracy=test_accuracy,
            data_wait_s=split.get("data"),
            evaluate_s=evaluate_s,
            peak_memory_mib=peak,
            step_ms_median=middle_step_ms(marked, ranks[0]),
            train_s_so_far=self.train_s,
            parts_s=split,
            ended_at=time.time(),
            image_side=self.recipe.kind(index)[0][0] if self.recipe.epoch_sizes else None,
            trained_share=self.recipe.kind(index)[1] if self.recipe.selection else None,
            breakdown=ranks[0],
            ranks_breakdown=tuple(other for other in ranks[1:] if other is not None),
            **tested.scores,
        )

    def _evaluated(self) -> Counts:
        found = evaluate(self.parts, self.recipe, self.recipe.data.test)
        self.cached = (self.recipe.evaluate_on or self.parts.device).type == "cuda"
        return found

    def _quality(self) -> dict[str, float]:
        """What an evaluation gives, by the names of quality metrics.

        A user's own may not expect a net that knows nothing: where it fails, nothing is known, nor where other ranks
        would wait for one that fails.
        """
        if self.recipe.world.size > 1:
            return {}
        kept = Kept(getattr(self.recipe.data, "workload", None))
        try:
            tested = self._evaluated()
        except Exception:  # whatever it is, the next evaluation will tell
            self.parts.evaluated.train()
            return {}
        finally:
            kept.back()  # the best score so far, say, of a training that no other process has looked at
            self._give_back()
        loss, accuracy, _ = totals([tested])
        known = {"test_loss": loss, "test_accuracy": accuracy, **tested.scores}
        return {name.removeprefix("test_"): v for name, v in known.items() if v is not None and math.isfinite(v)}

    def _give_back(self) -> None:
        if self.cached:
            torch.cuda.empty_cache()
            self.cached = False

    def _peak(self) -> float | None:
        """MiB of the largest rank; None where a GPU's allocator still holds what an evaluation took."""
        return None if self.cached else max(self.recipe.world.gathered(peak_mib(self.parts.device)))

    def _other_kinds(self, calls: int) -> None:
        kinds = [self.recipe.kind(epoch) for epoch in range(self.recipe.epochs)]
        for epoch in sorted(kinds.index(kind) for kind in set(kinds) - set(kinds[:1])):
            self._shapes(epoch, calls, calls)

    def _shapes(self, epoch: int, whole_calls: int, last_calls: int) -> None:
        """Steps on the epoch's first batch, and on its last where that is of another size."""
        recipe = self.recipe
        order = torch.arange(len(recipe.data.train))
        # By the batch of all ranks: steps exchange gradients, so each rank must take as many.
        together = batches(order, recipe.batch_size, recipe.world.size)
        if len(together[-1]) == len(together[0]):
            last_calls = 0
        if not whole_calls + last_calls:
            return
        last = shares(order, recipe.batch_size, recipe.world)[-1]
        first = next(iter(self.parts.loader.epoch(epoch)))
        # The last part may be larger than the first, where a small remainder joined it.
        smaller = replace(
            self._of_items(first, last.indices.tolist()),
            weight=last.weight,
            trained=recipe.selection.trained(len(last.indices), epoch, 0) if recipe.selection else None,
        )
        for batch, calls in ((first, whole_calls), (smaller, last_calls)):
            for _ in range(calls):
                self.parts.step(self.parts, batch)

    def _of_items(self, first: Batch, indices: list[int]) -> Batch:
        """A batch of so many samples, cut out of the first; of what can't be cut these items are read."""
        held, data = len(first), self.recipe.data
        if isinstance(data, OwnData) and undivided(first.inputs, held) is not None:
            # Lengths in a list, tokens in a row, a graph's edges: what a part of them is, the collate_fn alone knows.
            return read(self.recipe, data.train, indices, self.parts.device)
        return Batch(*(cut(tree, held, len(indices)) for tree in (first.inputs, first.labels)))

    def _count_syncs(self) -> None:
        """One step more on a GPU, for the record: what it waits for is part of it; not of a trainer's own loop."""
        if self.parts.device.type == "cuda" and self.parts.driver is None:
            batch = next(iter(self.parts.loader.epoch(0)))
            self.syncs = count_syncs(lambda: self.parts.step(self.parts, batch))

    def wait(self) -> float | None:
        """Waits for a GPU and returns for how many seconds; None on a CPU."""
        if self.parts.device.type != "cuda":
            return None
        begin = time.perf_counter()
        torch.cuda.synchronize(self.parts.device)  # waits for the device
        return time.perf_counter() - begin


class _Counted:
    """The lap of a counted epoch.

    Attributes:
        own_s: seconds of this rank, from the first fetch to the end of the last step.
        drain_s: of these the last wait for a GPU; None on a CPU.
        held: what held them up.
    """

    def __init__(self, session: Session, index: int, stack: contextlib.ExitStack) -> None:
        """Takes a stack on which the watch over pauses stands for as long as the epoch runs."""
        self.session, self.index, self.stack = session, index, stack
        self.steps = len(session.parts.loader)
        self.counts, self.own_s, self.held = list[Counts](), 0.0, Held(0.0)
        self.drain_s: float | None = None

    def begin(self) -> None:
        """See `Lap`."""
        self.pauses = self.stack.enter_context(watched_pauses())
        self.session.marks.start(self.steps)
        self.began = time.perf_counter()

    def step(self, counts: Counts) -> None:
        """See `Lap`."""
        self.counts.append(counts)
        self.session.progress(self.index, len(self.counts), self.steps)
        self.session.marks.end_step()

    def end(self) -> None:
        """See `Lap`."""
        self.drain_s = self.session.wait()
        self.own_s, self.held = time.perf_counter() - self.began, self.pauses.held
        self.session.marks.stop()
        self.stack.close()
