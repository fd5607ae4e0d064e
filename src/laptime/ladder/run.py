"""A ladder on its way: plan, run variant by variant, compare, publish. What the command line and the flows share."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from laptime.catalogue import find_workload
from laptime.compare.comparison import compare
from laptime.compare.markdown import to_markdown
from laptime.compare.model import Comparison
from laptime.compare.write import write_comparison
from laptime.devices import choose_device, device_count
from laptime.errors import TrackingError
from laptime.ladder.figures import headline_figures, variant_figures
from laptime.ladder.plan import Climb, Plan, make_plan, rung_of
from laptime.ladder.ranks import with_parallel
from laptime.ladder.request import LadderRequest, fitted_preset, make_spec, tracking_uri
from laptime.ladder.surroundings import commit, run_probe
from laptime.launchers import launch
from laptime.launchers.base import RECORD, Hooks, failed, ignore
from laptime.places import Places
from laptime.records import LadderRecord, ProbeRecord, Rung, RunRecord, write_json
from laptime.spec import DataSpec
from laptime.tracking import Journal
from laptime.tracking.publish import (
    ladder_finished,
    ladder_started,
    run_folder,
    variant_compared,
    variant_recorded,
)
from laptime.tracking.reach import require_answer
from laptime.tracking.sync import sync, target_of
from laptime.variants import Variant, baseline_of

Say = Callable[[str], None]
Ending = Literal["done", "failed", "interrupted"]


@dataclass(frozen=True)
class Turn:
    """One process of one variant.

    Attributes:
        number: from 1, of `total`, which is an estimate until the first round has settled what stays.
        repeat: the round, from 0.
    """

    variant: str
    repeat: int
    number: int
    total: int
    repeats: int


class Ladder:
    """A ladder that is being run; its state stands in `folder/ladder.json` after each turn."""

    def __init__(self, request: LadderRequest, record: LadderRecord, plan: Plan, places: Places) -> None:
        self.request, self.record, self.plan, self.places = request, record, plan, places
        self.folder = Path(request.out).resolve() if request.out else places.runs / record.id
        self.preset = fitted_preset(request, record.data)
        self.variants: dict[str, Variant] = {}
        self.runs: list[RunRecord] = []
        self.journal: Journal | None = None
        self.comparison: Comparison | None = None
        self.files: dict[str, Path] = {}

    def start(self) -> None:
        """Makes the folder and the journal."""
        self.folder.mkdir(parents=True, exist_ok=True)
        os.environ["LAPTIME_COMMIT"] = self.record.commit or ""  # for the records that workers write
        self._save()
        target = target_of(tracking_uri(self.request, self.places), self.places)
        self.journal = Journal(self.places.journal / f"{self.record.id}.jsonl", target)
        ladder_started(self.journal, self.record)

    def turns(self) -> Iterator[Turn]:
        """Yields what to run next, one at a time; `run` must have been called before the next is asked for."""
        yield from self._first_round()
        number = len(self.variants)
        total = number * self.preset.repeats
        for repeat in range(1, self.preset.repeats):
            for name in list(self.variants):
                if self._failed(name):
                    continue
                number += 1
                yield Turn(name, repeat, number, total, self.preset.repeats)

    def _first_round(self) -> Iterator[Turn]:
        for variant in self.plan.fixed:
            on = None if variant.name == self.plan.fixed[0].name else self.plan.fixed[0].name
            yield self._enter(variant, rung_of(variant, on=on))
        if not self.plan.adaptive:
            return
        climb = Climb(self.plan, baseline_of(self.plan.device))
        climb.best_s = min((e.epoch_s for r in self.runs for e in r.kept), default=None)
        for group in self.plan.rungs:
            variant, rung = climb.next_rung(group)
            if variant.optimizations == climb.best.optimizations:
                continue  # a second try of what joined at the first
            yield self._enter(variant, rung)
            self._replace_rung(climb.judge(variant, rung, self.runs[-1]))
        for variant, rung in climb.optimized():
            yield self._enter(variant, rung)

    def _enter(self, variant: Variant, rung: Rung) -> Turn:
        self.variants[variant.name] = variant
        self.record = self.record.model_copy(update={"rungs": (*self.record.rungs, rung)})
        planned = max(len(self.variants), len(self.plan.fixed) + len(self.plan.rungs) + 2 * self.plan.adaptive)
        return Turn(variant.name, 0, len(self.variants), planned * self.preset.repeats, self.preset.repeats)

    def run(self, turn: Turn, hooks: Hooks) -> RunRecord:
        """Runs one turn to its record, whatever becomes of it."""
        spec = make_spec(self.request, self.variants[turn.variant], self.record.data, turn.repeat)
        folder = run_folder(self.folder, turn.variant, turn.repeat)
        try:
            record = launch(self.request.launcher, spec, folder, hooks)
        except BaseException:
            self.runs.append(failed(spec, "interrupted"))
            write_json(folder / RECORD, self.runs[-1])
            raise
        self.runs.append(record)
        self._settle(record)
        self._save()
        return record

    def _settle(self, record: RunRecord) -> None:
        """Later rounds repeat what the first one fixed, down to the layers that a timing chose."""
        if record.spec is not None and record.settled:
            variant = self.variants[record.spec.variant]
            self.variants[variant.name] = replace(variant, optimizations=record.settled)

    def compare(self) -> Comparison:
        """Compares what has run and writes the report's files into the folder."""
        self.record = self.record.model_copy(update={"ended_at": time.time()})
        self.comparison = compare(self.record, self.runs)
        self.files = write_comparison(self.comparison, self.record, self.runs, self.folder)
        self._save()
        return self.comparison

    def close(self, ending: Ending) -> None:
        """Ends the ladder in the journal, whatever came of it; safe to call twice."""
        if self.journal is None or self.record.status != "running":
            return
        self.record = self.record.model_copy(update={"status": ending, "ended_at": time.time()})
        self._save()
        for rung in self.record.rungs:
            runs = [r for r in self.runs if r.spec is not None and r.spec.variant == rung.variant]
            if runs:
                variant_recorded(self.journal, self.record, rung, runs, self.folder)
        self._finish(self.journal, ending)
        self.journal.close()

    def _finish(self, journal: Journal, ending: Ending) -> None:
        own = {"ladder.json": self.folder / "ladder.json"}
        if self.comparison is None:
            ladder_finished(journal, self.record, {}, f"The ladder ended as {ending}.", own)
            return
        for row in self.comparison.rows:
            if row.n:
                variant_compared(journal, self.record, row.variant, variant_figures(row))
        figures = headline_figures(self.comparison)
        ladder_finished(journal, self.record, figures, to_markdown(self.comparison), own | self.files)

    def publish(self, say: Say = ignore) -> None:
        """Copies the journal into MLflow; raises TrackingError where it does not answer (the journal keeps all)."""
        sync(self.places, tracking_uri(self.request, self.places), say)

    def exit_code(self) -> int:
        """0, or 1 where the baseline or all contenders failed."""
        done = {r.spec.variant for r in self.runs if r.spec is not None and r.status == "done"}
        baseline = self.plan.fixed[0].name
        contenders = [name for name in self.variants if name != baseline]
        return 0 if baseline in done and (not contenders or done - {baseline}) else 1

    def complaint(self) -> str:
        """Why the ladder failed, in one sentence."""
        baseline = self.plan.fixed[0].name
        first = next((r for r in self.runs if r.status != "done" and r.spec is not None), None)
        if first is None or first.spec is None:
            return "no variant was run."
        what = "the baseline" if first.spec.variant == baseline else "every contender"
        return f"{what} failed; {first.spec.variant}: {first.error}"

    def _failed(self, name: str) -> bool:
        return any(r.spec is not None and r.spec.variant == name and r.status != "done" for r in self.runs)

    def _replace_rung(self, rung: Rung) -> None:
        rungs = tuple(rung if r.variant == rung.variant else r for r in self.record.rungs)
        self.record = self.record.model_copy(update={"rungs": rungs})
        self._save()

    def _save(self) -> None:
        write_json(self.folder / "ladder.json", self.record)


def open_ladder(request: LadderRequest, data: DataSpec, places: Places, say: Say = ignore) -> Ladder:
    """Probes the machine, plans the ladder and starts its journal.

    Raises:
        UsageError: a variant, device or preset that does not exist here.
    """
    entry, preset = find_workload(request.workload), fitted_preset(request, data)
    device = choose_device(request.device)
    make_plan(device, preset, request.variants, ProbeRecord())  # refuses unknown names before seconds are spent
    catch_up(tracking_uri(request, places), places, say)
    say("Probing this machine (a few seconds)")
    probe = run_probe(request.workload, device, places, say)
    plan = with_parallel(make_plan(device, preset, request.variants, probe), preset, entry, device_count(device))
    chance = 1 / len(data.classes)
    record = LadderRecord(
        id=f"{time.strftime('%Y%m%d-%H%M%S')}-{request.workload}-{secrets.token_hex(2)}",
        workload=request.workload,
        preset=request.preset,
        device=device,
        data=data,
        probe=probe,
        left_out=plan.left_out,
        epochs=preset.epochs,
        repeats=preset.repeats,
        limit_train=preset.limit_train,
        limit_test=preset.limit_test,
        seed=request.seed,
        quality=entry.quality,
        quality_floor=chance + entry.floor_over_chance * (1 - chance),
        commit=commit(),
        started_at=time.time(),
    )
    ladder = Ladder(request, record, plan, places)
    ladder.start()
    return ladder


def catch_up(uri: str, places: Places, say: Say) -> None:
    """Sends what earlier ladders left in their journals; a store that does not answer is told now, not hours later."""
    try:
        require_answer(uri)
        sync(places, uri, say)
    except TrackingError as error:
        say(str(error))
