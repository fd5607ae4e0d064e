"""Advice for people: a terminal's text and Markdown. Names come from users' files, so both are made harmless."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from laptime.advice.figures import ms, percent
from laptime.records.advice import Advice, Finding, Measured, RuleHistory, Withheld

# Of an address what needs no escape stays as it is: a reader of Markdown makes a link of it with any backslash in it.
_ADDRESS_OR_MARKUP = re.compile(r"(?P<address>https?://[\w./~:%=+-]+)|[\\`*_\[\]|~#!]")
_FOOT = (
    "Each gain is of the step as it is now: gains do not add up. Confidence is the rule's own, corrected by how often "
    "its proposals were faster and lost no quality; the range is scaled by what they brought of what it had said."
)
# Before the command that measures a change of code.
MEASURE = "measure it, before you commit:"
_UNKNOWN = "not known: "
# How the headline begins where a noisy or busy machine is why no numbers are given.
TOO_MUCH = "The machine was too "


def to_text(advice: Advice) -> str:
    """Ranked findings for a terminal, without markup."""
    lines = [f"Advice on {clean(advice.subject) or 'a run'}{_conditions(advice)}", clean(advice.verdict), ""]
    for number, finding in enumerate(advice.findings, start=1):
        lines += [f"{number}. {clean(finding.what)}", f"   {_expected(finding)}"]
        lines += [f"   - {clean(text)}" for text in (*finding.evidence, *_past(finding.history), *_after(finding))]
        lines += [f"   at {clean(', '.join(finding.lines))}"] if finding.lines else []
        lines += [f"   $ {clean(finding.command)}" if finding.variant else f"   write: {clean(finding.command)}"]
        lines += [f"   {MEASURE} $ {clean(finding.measured_by)}"] if finding.measured_by else []
        lines += [""]
    lines += [f"Note: {clean(text)}" for text in advice.notices]
    lines += [f"Withheld: {clean(text)}" for text in _withheld(advice.withheld)]
    return "\n".join(lines + ([_FOOT] if advice.findings else [])).rstrip() + "\n"


def to_markdown(advice: Advice) -> str:
    """The same as a page of its own, `advice.md`."""
    lines = [f"## Advice: {escape(advice.subject) or 'a run'}", "", f"**{escape(advice.verdict)}**", ""]
    lines += [f"{_conditions(advice).strip(' ():').capitalize()}.", ""] if advice.step_ms is not None else []
    if advice.findings:
        lines += ["| | finding | step ms, expected | gain | class | confidence | past |", f"|{' --- |' * 7}"]
        lines += [_row(number, finding) for number, finding in enumerate(advice.findings, start=1)]
        lines += ["", _FOOT, ""]
    for number, finding in enumerate(advice.findings, start=1):
        lines += [f"### {number}. {escape(finding.what)}", ""]
        lines += [f"- {escape(text)}" for text in (*finding.evidence, *_past(finding.history), *_after(finding))]
        lines += [f"- at {', '.join(_code(line) for line in finding.lines)}"] if finding.lines else []
        lines += ["", "Run it:" if finding.variant else "Write:", "", f"    {clean(finding.command)}", ""]
        lines += [MEASURE.capitalize(), "", f"    {clean(finding.measured_by)}", ""] if finding.measured_by else []
    lines += _listed("Mind", advice.notices) + _listed("Withheld", _withheld(advice.withheld))
    return "\n".join(lines).rstrip() + "\n"


def _listed(title: str, sentences: Iterable[str]) -> list[str]:
    told = [f"- {escape(text)}" for text in sentences]
    return [f"**{title}**", "", *told, ""] if told else []


def _row(number: int, f: Finding) -> str:
    cells = (
        str(number),
        _code(f.id),
        f"{_span(f.step_ms_expected, _ms)} instead of {_ms(f.step_ms_now)}",
        _span(f.gain, _percent),
        f.klass or "–",
        f"{percent(f.confidence)}",
        f"{f.history.faster} of {f.history.tried}" if f.history.tried else "–",
    )
    return f"| {' | '.join(cells)} |"


def _conditions(advice: Advice) -> str:
    if advice.step_ms is None:
        return ":"
    noise = "" if advice.noise is None else f", noise {percent(advice.noise, 1)}"
    return f" (a step takes {_ms(advice.step_ms)} ms{noise}):"


def _expected(f: Finding) -> str:
    klass = f"{f.klass}, " if f.klass else ""
    return (
        f"expected {_span(f.step_ms_expected, _ms)} ms a step instead of {_ms(f.step_ms_now)} "
        f"({_span(f.gain, _percent)} less); {klass}confidence {percent(f.confidence)}"
    )


def _past(history: RuleHistory) -> Iterator[str]:
    if history.tried:
        off = "" if history.error is None else f", with a median error of {percent(history.error)} of the step"
        where = " on this machine" if history.here else ""
        last = f" and {history.last_faster} of the last {history.last}" if history.last else ""
        yield f"this rule was right {history.faster} of {history.tried} times{last}{where}{off}"


def _after(f: Finding) -> Iterator[str]:
    """Predicted beside measured."""
    if f.measured is not None:
        yield _measured(f, f.measured)


def _measured(f: Finding, m: Measured) -> str:
    if m.gain is None:
        return f"not measured: {m.error or 'no figure came out'}"
    predicted = f"predicted {_span(f.gain, _percent)} less"
    found = f"{_percent(m.gain)} less" if m.gain >= 0 else f"{_percent(-m.gain)} more"
    steps = ""
    if m.step_ms is not None and m.step_ms_before is not None:
        steps = f" ({_ms(m.step_ms)} instead of {_ms(m.step_ms_before)} ms a step, n = {m.n})"
    quality = {True: "quality kept", False: "quality not kept", None: "quality not judged"}[m.quality_kept]
    return f"{predicted}, measured {found}{steps}; {m.quality or quality}"


def _withheld(withheld: tuple[Withheld, ...]) -> list[str]:
    """What was held back and why."""
    return [f"{', '.join(ids)}: {reason}" for ids, reason in grouped(withheld)]


def grouped(withheld: tuple[Withheld, ...]) -> list[tuple[list[str], str]]:
    """Reasons with the rules that each is about: what holds for many, such as a noisy machine, is said once.

    What a rule lacks stands last.
    """
    lacking: dict[str, list[str]] = {}
    told: dict[str, list[str]] = {}
    for one in withheld:
        (lacking if one.reason.startswith(_UNKNOWN) else told).setdefault(one.reason, []).append(one.id)
    found = [(ids, reason) for reason, ids in told.items()]
    return found + [
        (ids, f"can't judge, since nobody recorded {reason.removeprefix(_UNKNOWN)}") for reason, ids in lacking.items()
    ]


def _span(ends: tuple[float, float], write: Callable[[float], str]) -> str:
    low, high = (write(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if 0.1 <= value < 10 else ms(value)


def _percent(value: float) -> str:
    return percent(value, 0 if value >= 0.1 else 1)


def clean(text: str) -> str:
    """One line without control sequences."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def escape(text: str) -> str:
    """Harmless in Markdown: one line without markup, HTML, links that show another text, images and mentions."""
    marked = _ADDRESS_OR_MARKUP.sub(lambda m: m[0] if m["address"] else f"\\{m[0]}", clean(text))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


def _code(name: str) -> str:
    return f"`{re.sub(r'[`|<>@]', chr(39), clean(name))}`"
