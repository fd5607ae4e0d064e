"""Advice at a ladder's end: by variant, then of the whole ladder; where asked for, its remedies are run as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from laptime.compare.advising import verdict_of, worth
from laptime.compare.comparison import compare
from laptime.compare.model import Comparison
from laptime.errors import DataError, shorten
from laptime.ladder.request import tracking_uri
from laptime.ladder.shown import with_shown
from laptime.ladder.verify import MOST, Verification
from laptime.records import Advice, Finding, Measured, RunRecord, TraceSummary, write_json, write_text
from laptime.records.rates import middle
from laptime.records.trace import TRACE_SCHEMA
from laptime.spec import Versioned, read_versioned
from laptime.tracking.outage import Outage
from laptime.tracking.publish import run_folder
from laptime.tracking.rule_history import rule_history

if TYPE_CHECKING:
    from laptime.ladder.run import Ladder
    from laptime.ladder.turn import Turn

TRACE = Path("profile") / "breakdown.json"
JSON, MARKDOWN = "advice.json", "advice.md"

# What a profile holds as something over the counted step.
_OVER_THE_STEP = ("ratio", "floor_share", "mfu")
_TRACE_FILE = Versioned("breakdown", TRACE_SCHEMA, "run the variant again with this version", DataError)


class Rules(NamedTuple):
    """What gives advice, and what writes it out."""

    advise: Callable[..., Advice]
    to_markdown: Callable[[Advice], str]


def the_rules() -> Rules:
    """Those of `laptime.advice`."""
    from laptime.advice import advise
    from laptime.advice.text import to_markdown

    return Rules(advise, to_markdown)


class Counsel:
    """What the rules say about a ladder's variants, and what came of it. Nothing in here costs a ladder its results.

    Attributes:
        rules: what gives advice; None until it is asked for, then `laptime.advice`.
        traces: profiled segments of the variants that have one.
        advice: by variant.
        best: the variant to go on from: the fastest that is not worse, if it was advised on; None before.
        files: the ladder's own advice, by its place in the parent run's artifacts.
    """

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
        self.rules: Rules | None = None
        self.traces: dict[str, TraceSummary] = {}
        self.advice: dict[str, Advice] = {}
        self.best: str | None = None
        self.files: dict[str, Path] = {}
        self._given: dict[str, Advice] = {}
        self._verification: Verification | None = None

    def turns(self) -> Iterator[Turn]:
        """Advises; then, where the request says so, yields the turns that verify the advice."""
        with self._guarded("no advice can be given"):
            self._advise()
        with self._guarded("the advice can't be written"):
            self._write()
        if not self.ladder.request.verifies or self.best is None:
            return
        self.ladder.compare()  # whoever interrupts from here on has a report
        self._given = dict(self.advice)
        with self._guarded("the advice can't be verified"):
            verification = Verification(self.ladder, *self._chosen(self.best))
            for text in verification.told():
                self.ladder.say(text)
            self._verification = verification
        if self._verification is not None:
            yield from self._verification.turns()
        self.settle()

    def _chosen(self, best: str) -> tuple[dict[str, Advice], int | None]:
        """The advice to verify, and how many remedies of each variant; with a number it is that of all variants."""
        most = self.ladder.request.verify_most
        names = (self.ladder.plan.fixed[0].name, best, *(() if most is None else self.advice))
        chosen = {name: self.advice[name] for name in names if name in self.advice}
        return chosen, MOST if most is None else None if most == "all" else most

    def settle(self) -> None:
        """Adds what has been measured to the findings and writes them anew; safe to repeat."""
        if self._verification is not None:
            with self._guarded("what the advice brought can't be written"):
                for name, measured in self._verification.results().items():
                    self.advice[name] = with_measured(self._given[name], measured)
                self._write()

    def merged(self) -> Advice | None:
        """The advice of the whole ladder: the best variant's findings first, each remedy once; None without any."""
        if self.best is None:
            return None
        mine = self.ladder.variants[self.best].optimizations
        return merged(self.ladder.record.id, self.advice, (self.best, {o.name for o in mine}))

    def verified(self) -> list[tuple[str, Finding]]:
        """Variant and finding of each remedy that was run."""
        if self._verification is None:
            return []
        tried = self._verification.tried()
        return [
            (variant, finding)
            for variant, advice in self.advice.items()
            for finding in advice.findings
            if finding.measured is not None and (variant, finding.id) in tried
        ]

    def _advise(self) -> None:
        ladder = self.ladder
        self.rules = self.rules or the_rules()
        uri, machine = tracking_uri(ladder.request, ladder.places), ladder.record.probe.machine.fingerprint
        outage = ladder.courier.outage if ladder.courier else Outage(ladder.say)
        history = rule_history(uri, outage, machine, but=ladder.record.id)
        comparison = compare(ladder.record, ladder.runs)
        for name in ladder.variants:
            record = first_done(ladder.runs, name)
            if record is None:
                continue
            trace = self.trace_of(name)
            if trace is not None:
                self.traces[name] = trace
            with self._guarded(f"no advice can be given on {name}"):
                whole = over_rounds(record, mine_of(ladder.runs, name))
                probe = with_shown(ladder.record.probe, comparison, name)
                advice = self.rules.advise(whole, trace, history, probe)
                self.advice[name] = advice.model_copy(update={"subject": name})
        self.best = self._to_go_on_from(comparison)

    def _to_go_on_from(self, comparison: Comparison) -> str | None:
        """The variant that the report calls the fastest, so that both say the same; else the baseline, else any."""
        best = comparison.headline("fastest")
        known = (best.variant if best else None, self.ladder.plan.fixed[0].name, *self.advice)
        return next((name for name in known if name in self.advice), None)

    def trace_of(self, name: str) -> TraceSummary | None:
        path = run_folder(self.ladder.folder, name, 0) / TRACE
        if not path.is_file():
            return None
        try:
            return read_versioned(path, TraceSummary, _TRACE_FILE)
        except DataError as error:
            self.ladder.say(f"The advice on {name} goes without its profile: {error}")
            return None

    def _write(self) -> None:
        rules, whole = self.rules, self.merged()
        if whole is None or rules is None:
            return
        for name, advice in self.advice.items():
            write_advice(run_folder(self.ladder.folder, name, 0), advice, rules)
        write_advice(self.ladder.folder, whole, rules)
        self.files = {name: self.ladder.folder / name for name in (JSON, MARKDOWN)}

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a rule is arithmetic on foreign figures: hours of training must not hang on it
            self.ladder.say(f"NOTICE: {what}: {type(error).__name__}: {shorten(str(error), 200)}")


def mine_of(runs: list[RunRecord], variant: str) -> list[RunRecord]:
    """The records of a variant."""
    return [r for r in runs if r.spec is not None and r.spec.variant == variant]


def first_done(runs: list[RunRecord], variant: str) -> RunRecord | None:
    """The record of a variant's first process, which was checked and profiled; None where it is not done."""
    return next((r for r in mine_of(runs, variant) if r.spec and r.spec.repeat == 0 and r.status == "done"), None)


def over_rounds(first: RunRecord, runs: Sequence[RunRecord]) -> RunRecord:
    """The record of a variant's first process as if it had trained the epochs of all rounds.

    So the step and its parts are medians over the rounds, and no slow minute of the first decides. What the first alone
    has (set-up, inference, profile) stays; what its profile says relative to its own step becomes relative to that one:
    the shares of the ceilings, and how much longer the profiled steps took.
    """
    done = [r for r in runs if r.status == "done"]
    whole = first.model_copy(update={"epochs": tuple(e for r in done for e in r.epochs)})
    machine = first.machine.model_copy(update={"load_before": middle(r.machine.load_before for r in done)})
    # As the rules take the step.
    profile, before, now = first.profile, *(middle(e.middle_step_ms for e in r.kept) for r in (first, whole))
    if profile is not None and before and now:
        known = {name: getattr(profile, name) for name in _OVER_THE_STEP if getattr(profile, name) is not None}
        profile = profile.model_copy(update={name: value * before / now for name, value in known.items()})
    return whole.model_copy(update={"machine": machine, "profile": profile})


def with_measured(advice: Advice, measured: Mapping[str, Measured]) -> Advice:
    """Advice with what became of its findings, by their id, ranked anew; its headline, which is older, says so too."""
    findings = [f.model_copy(update={"measured": measured[f.id]}) if f.id in measured else f for f in advice.findings]
    findings.sort(key=worth, reverse=True)
    ran = [m for m in measured.values() if m.gain is not None]
    faster = [m for m in ran if m.gain is not None and m.gain > 0]
    doubtful = sum(m.gain_low is not None and m.gain_low <= 0 for m in faster)
    found = f" Verified: {len(faster)} of {len(ran)} remedies that were run made it faster"
    lost = sum(m.quality_kept is False for m in faster)
    found += f", {doubtful} of them by less than the noise" if doubtful else ""
    found += f", {lost} of them with quality lost" if lost else ""
    verdict = verdict_of(advice, findings) + (f"{found}." if ran else "")
    return advice.model_copy(update={"findings": tuple(findings), "verdict": verdict})


def merged(ladder_id: str, advice: Mapping[str, Advice], going_on: tuple[str, set[str]]) -> Advice:
    """The advice of a ladder.

    What to do next builds on the best variant, so its findings come first; those on the other variants follow, without
    remedies that stand there already. Verified ones all stay.

    Args:
        ladder_id: the subject.
        advice: by variant.
        going_on: the variant to go on from, and the optimizations that it has: nobody needs to be told of those.
    """
    best, has = going_on
    told = [(name, f) for name, mine in advice.items() for f in mine.findings]
    told.sort(key=lambda entry: (entry[0] != best, -worth(entry[1])))
    kept, seen = list[Finding](), set[tuple[str, ...]]()
    for name, finding in told:
        remedy = finding.variant.rpartition("+")[2] or finding.id
        if finding.measured is None and remedy.partition(":")[0] in has:
            continue
        key = (remedy,) if finding.measured is None else (name, remedy)
        if key not in seen:
            kept.append(finding.model_copy(update={"evidence": (f"Seen on {name}.", *finding.evidence)}))
        seen |= {(remedy,), (name, remedy)}
    update = {"subject": ladder_id, "findings": tuple(kept), "notices": _notices(advice)}
    return advice[best].model_copy(update=update)


def _notices(advice: Mapping[str, Advice]) -> tuple[str, ...]:
    """Each notice once, with the variants that it is about where it is not about all of them."""
    about: dict[str, list[str]] = {}
    for name, mine in advice.items():
        for notice in mine.notices:
            about.setdefault(notice, []).append(name)
    return tuple(
        text if len(names) == len(advice) else f"On {', '.join(names)}: {text}" for text, names in about.items()
    )


def write_advice(folder: Path, advice: Advice, rules: Rules) -> None:
    """Writes advice into a folder, as data and as a page."""
    write_json(folder / JSON, advice)
    text = rules.to_markdown(advice)
    write_text(folder / MARKDOWN, text if text.endswith("\n") else text + "\n")
