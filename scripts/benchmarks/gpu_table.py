"""What `scripts/bench gpu` prints at the end: kernels, checks, and a line for each variant."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from laptime.records import LadderRecord, RunRecord

Runs = Mapping[str, Sequence[RunRecord]]

_KERNELS = 15
_NAME = 64
_JOINED = {True: "yes", False: "no", None: ""}


def table(ladder: LadderRecord, runs: Runs) -> list[str]:
    """One line a variant, the baseline first; a refused one has its time, and is not believed."""
    joined = {rung.variant: _JOINED[rung.joined] for rung in ladder.rungs}
    base = epoch_s(runs.get(f"{ladder.device}-baseline", ()))
    lines = [f"{'variant':<40}{'epoch':>12}{'speed':>9}{'images/s':>12}{'MiB':>8}{ladder.quality:>10}  n  joined"]
    for name, records in runs.items():
        seconds = epoch_s(records)
        if seconds is None:
            lines.append(f"{name:<40}{records[0].status}: {(records[0].error or '')[:90]}")
            continue
        first = next(r for r in records if r.kept)
        samples = first.kept[-1].samples
        speed = f"{base / seconds:.1f}x" if base else ""
        memory = f"{first.peak_memory_mib:,.0f}" if first.peak_memory_mib else ""
        value = _quality(ladder, first)
        cells = f"{seconds * 1000:>9,.1f} ms{speed:>9}{samples / seconds:>12,.0f}{memory:>8}{value:>10}"
        said = "refused by its check" if any(r.status == "wrong" for r in records) else joined.get(name, "")
        lines.append(f"{name:<40}{cells}{sum(r.status == 'done' for r in records):>3}  {said}")
    not_run = [o.variant for o in ladder.left_out if o.reason.startswith("not run")]
    return [*lines, *([f"not run, for want of time: {', '.join(not_run)}"] if not_run else [])]


def epoch_s(records: Sequence[RunRecord]) -> float | None:
    """Median over processes of the median kept epoch, of those that ended or were refused; None without any."""
    times = [median(r.laps) for r in records if r.status in ("done", "wrong") and r.kept]
    return median(times) if times else None


def _quality(ladder: LadderRecord, record: RunRecord) -> str:
    value = getattr(record.epochs[-1], f"test_{ladder.quality}")
    return "" if value is None else f"{value:.3f}"


def checks(runs: Runs) -> list[str]:
    """What each check found, passed or not: error/tolerance of loss, whole gradient, worst layer and recording."""
    lines = []
    for name, records in runs.items():
        check = next((r.check for r in records if r.check), None)
        if check is None:
            continue
        cells = [
            f"loss {check.loss_error:.1e}/{check.loss_tolerance:.1e}",
            f"gradient {check.gradient_error:.1e}/{check.gradient_tolerance:.1e}",
        ]
        if check.layer is not None:
            cells.append(f"{check.layer} {check.layer_error:.1e}/{check.layer_tolerance:.1e}")
        if check.pieces is not None:
            cut = check.pieces
            cells.append(
                f"in pieces loss {cut.loss_error:.1e}/{cut.loss_tolerance:.1e}, gradient {cut.gradient_error:.1e}/"
                f"{cut.gradient_tolerance:.1e}, {cut.place} {cut.error:.1e}/{cut.tolerance:.1e}"
            )
        if check.recording is not None:
            found = check.recording
            cells.append(f"replay {found.loss_error:.1e}, {found.moved} {found.error:.1e}/{found.tolerance:.1e}")
        lines.append(f"{name:<40}{'' if check.passed else 'REFUSED '}{', '.join(cells)}")
    return lines


def headline(ladder: LadderRecord, runs: Runs) -> list[str]:
    """What the bench is run for, in a sentence for each of the optimized variants."""
    baseline = f"{ladder.device}-baseline"
    base, lines = epoch_s(runs.get(baseline, ())), []
    for name in (f"{ladder.device}-optimized", f"{ladder.device}-optimized+compile"):
        records = [r for r in runs.get(name, ()) if r.status == "done"]
        seconds = epoch_s(records)
        if seconds is None or base is None:
            continue
        reached = ", ".join(_quality(ladder, r) for r in records)
        lines.append(
            f"{name}: {seconds * 1000:.1f} ms an epoch (n={len(records)}), {base / seconds:.0f}x {baseline}; "
            f"{ladder.quality} {reached} after {len(records[0].epochs)} epochs, {baseline} "
            f"{_quality(ladder, runs[baseline][0])} after {len(runs[baseline][0].epochs)}"
        )
    return lines


def kernels(folder: Path, runs: Runs) -> Iterator[str]:
    """The kernels of each profiled variant that take most of the device's time, in a step."""
    for name, records in runs.items():
        for record in records:
            if record.profile is None or record.spec is None:
                continue
            trace = folder / name / str(record.spec.repeat) / record.profile.folder / "trace.json.gz"
            rows = by_kernel(trace)
            whole = sum(ms for _, _, ms in rows)
            said = f"{whole:.3f} ms of kernels a step" if rows else "; ".join(record.profile.notes) or "no kernel"
            yield f"{name} #{record.spec.repeat}: {said}"
            for kernel, calls, ms in rows[:_KERNELS]:
                yield f"  {ms:8.4f} ms {ms / whole:6.1%} {calls:6.1f} calls  {kernel[:_NAME]}"


def by_kernel(trace: Path) -> list[tuple[str, float, float]]:
    """Name, calls and milliseconds in a step of each kernel in a trace, the longest first; none where it is damaged."""
    try:
        with gzip.open(trace, "rt", encoding="utf-8", errors="replace") as file:
            events = json.load(file)["traceEvents"]
    except (OSError, EOFError, ValueError, KeyError):  # none was written, or not to its end: the times beside it stand
        return []
    steps = {e["name"] for e in events if str(e.get("name", "")).startswith("ProfilerStep#")}
    calls, spent, over = Counter[str](), Counter[str](), max(1, len(steps))
    for event in events:
        if event.get("cat") == "kernel":
            calls[event["name"]] += 1
            spent[event["name"]] += event["dur"]
    return [(name, calls[name] / over, us / 1e3 / over) for name, us in spent.most_common()]
