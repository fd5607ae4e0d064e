"""The comparison as Markdown, for MLflow's description and for a pull request."""

from __future__ import annotations

import re

from laptime.advice.text import escape
from laptime.compare import ablation, advising, payback, searching, steps, words
from laptime.compare.model import Comparison, VariantRow
from laptime.compare.quality import LOWER_IS_BETTER, name_of

HEADER = (
    "variant",
    "s/epoch",
    "speed-up",
    "samples/s",
    "{quality}",
    "vs. baseline",
    "peak MiB",
    "brought",
    "status",
)


def to_markdown(comparison: Comparison) -> str:
    """Renders headline sentences, conditions, the table, what has no time, and cautions."""
    given = comparison.conditions
    called = f" ({given.called})" if given.called else ""
    lines = [f"## Comparison: {escape(given.workload + called)} on {escape(given.device or 'one device')}", ""]
    if not given.real_data:
        notice = escape(given.data_notice or "The data is generated: quality is not judged.")
        lines += [f"> **Stand-in data.** {notice}", ""]
    lines += [f"- {escape(h.sentence)}" for h in comparison.told]
    lines += ["", escape(words.conditions(given, comparison.processes)), ""]
    header = [h.format(quality=f"test {escape(name_of(given.quality))}") for h in HEADER]
    lines += [_line(header), _line(["---", *["---:"] * 7, "---"])]
    lines += [_line(_cells(row, comparison)) for row in comparison.tried]
    less = given.quality in LOWER_IS_BETTER
    unit = f"{escape(name_of(given.quality))} in percent of the baseline's" if less else "pp are percentage points"
    lines += [
        "",
        f"Times: median over processes of the median epoch; intervals of 95 %; {unit}.",
    ]
    if comparison.scaling:
        lines += ["", "**Scaling**", "", _line(list(words.SCALING)), _line(["---"] * len(words.SCALING))]
        lines += [_line([escape(c) for c in words.scaling_cells(found)]) for found in comparison.scaling]
    for part in (_search, _parts, _compilations, _steps, _advice):
        lines += part(comparison)
    troubles = words.troubles(comparison)
    if troubles:
        lines += ["", "**Without a time, or with a failure**", ""]
        lines += [
            f"- {', '.join(f'`{_code(name)}`' for name in names)} ({standing}): {escape(why)}"
            for names, standing, why in troubles
        ]
    if comparison.cautions:
        lines += ["", "**Mind**", "", *(f"- {escape(text)}" for text in comparison.cautions)]
    return "\n".join(lines) + "\n"


def _parts(comparison: Comparison) -> list[str]:
    """The table of the parts of the optimized variant, where there is one."""
    if not comparison.parts:
        return []
    header = [h.format(quality=escape(ablation.unit_of(comparison.conditions.quality))) for h in ablation.HEADER]
    rows = [[f"`{_code(part.part)}`", *map(escape, ablation.cells(part)[1:])] for part in comparison.parts]
    lines = [_line(header), _line(["---", *["---:"] * 3, "---"]), *map(_line, rows)]
    return ["", f"**{ablation.TITLE}**", "", *lines, "", ablation.LEAD]


def _search(comparison: Comparison) -> list[str]:
    """What a search tried, where one led the ladder."""
    found = comparison.search
    if found is None:
        return []
    lines = ["", f"**{searching.TITLE}**", "", *(f"- {escape(text)}" for text in searching.sentences(found))]
    if not found.moves:
        return lines
    rows = [[f"`{_code(move.change)}`", *map(escape, searching.cells(move)[1:])] for move in found.moves]
    table = [_line(list(searching.HEADER)), _line(["---", "---", *["---:"] * 3, "---"]), *map(_line, rows)]
    return [*lines, "", *table, "", searching.LEAD]


def _compilations(comparison: Comparison) -> list[str]:
    told = [f"- `{_code(name)}` {escape(text)}" for name, text in payback.sentences(comparison)]
    return ["", "**What compiling cost**", "", *told] if told else []


def _steps(comparison: Comparison) -> list[str]:
    """Where a step goes: medians in milliseconds, by variant with a breakdown."""
    if not comparison.steps:
        return []
    names = steps.part_names(comparison.steps)
    lines = [
        _line(["variant", "step ms (quartiles)", *map(escape, names)]),
        _line(["---", *["---:"] * (len(names) + 1)]),
    ]
    for row in comparison.steps:
        step = f"{words.milliseconds(row.step_ms.median)} ({words.quartiles(row.step_ms)})"
        parts = [words.milliseconds(row.parts_ms.get(n)) for n in names]
        lines.append(_line([f"`{_code(row.variant)}`", step, *parts]))
    return ["", f"**{steps.TITLE}**, medians in milliseconds", "", *lines]


def _advice(comparison: Comparison) -> list[str]:
    """The first findings of each variant; the page has their evidence."""
    told = [(a, f) for a in advising.advised(comparison) for f in a.findings[: advising.SHORT_FINDINGS]]
    verdicts = [
        f"- {', '.join(f'`{_code(name)}`' for name in names)}: {escape(verdict)}"
        for names, verdict in advising.verdicts(comparison)
    ]
    lines = ["", f"**{advising.TITLE}**", "", *verdicts] if told or verdicts else []
    if not told:
        return lines
    lines += ["", _line(list(advising.SHORT)), _line(["---", "---", "---:", "---:", "---", "---"])]
    for advice, finding in told:
        command = f"`{_code(finding.command)}`" if finding.command else words.NONE
        cells = [escape(cell) for cell in advising.short_cells(finding)]
        cells[0] += f" At {', '.join(f'`{_code(line)}`' for line in finding.lines)}." if finding.lines else ""
        lines.append(_line([f"`{_code(advice.subject)}`", *cells, command]))
    return lines


def _code(name: str) -> str:
    """A name inside backticks: what would end the code or the table's cell, or call somebody, is replaced."""
    return re.sub(r"[`|<>]|@(?=\w)", "'", words.clean(name))


def _cells(row: VariantRow, comparison: Comparison) -> list[str]:
    (value, said), strict = words.quality_cell(row, comparison), words.strict_cell(row)
    standing = words.standing(row, comparison)
    if row.epoch_s is None:
        return [f"`{_code(row.variant)}`", *[words.NONE] * 7, standing]
    name = f"`{_code(row.variant)}`"
    speedup = words.ratio(row.speedup)
    if row.variant != comparison.baseline and row.speedup is not None:
        speedup = f"**{speedup}** ({words.speedup_span(row)})"
    return [
        name,
        f"{words.seconds(row.epoch_s)} ({words.time_span(row)})",
        speedup,
        words.count(row.samples_per_s),
        f"{value} ({strict})" if strict else value,
        said or words.NONE,
        words.count(row.peak_memory_mib),
        words.ratio(row.contribution),
        standing,
    ]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
