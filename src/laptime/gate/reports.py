"""The outputs of a gate: Markdown for a summary and a comment, JUnit XML, one annotation. JSON is the record itself."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from laptime.advice.text import escape
from laptime.errors import UsageError, shorten
from laptime.gate import words
from laptime.gate.records import GateRecord, Outcome
from laptime.records import write_text

# A pull request's comment is found again by this line, and updated in place.
MARKER = "<!-- laptime gate: {workload} -->"
_SIGNS = {"not_regressed": "✅", "improved": "🚀", "regressed": "❌", "inconclusive": "❔", "parity": "❌"}
_FIRST = {"AB": "base", "BA": "head"}
_LEVELS = {"not_regressed": "notice", "improved": "notice", "inconclusive": "warning"}


def to_markdown(record: GateRecord) -> str:
    """A step summary, and the text of the pull request's comment."""
    outcome = _outcome(record)
    sign = _SIGNS.get(outcome.kind, "⚠️")
    lines = [
        MARKER.format(workload=escape(record.workload)),
        f"## {sign} Gate `{_code(record.workload)}`: {words.TITLES[outcome.kind]}",
        "",
        escape(outcome.sentence),
        "",
        f"- base {_side(record.base.sha, record.base.dirty)}, head {_side(record.head.sha, record.head.dirty)}",
        f"- {escape(words.conditions(record))}",
    ]
    if outcome.cause is not None:
        lines.append(f"- {_cause(outcome)}")
    lines += [f"- {escape(text)}" for text in (*record.notices, record.advisory) if text]
    lines += _checks(outcome) + _pairs(record)
    if outcome.not_shown:
        lines += ["", "**Not shown**", "", *(f"- {escape(text)}" for text in outcome.not_shown)]
    if record.trouble is not None and record.trouble.log:
        lines += ["", "<details><summary>Log</summary>", "", *_indented(record.trouble.log), "", "</details>"]
    return "\n".join(lines) + "\n"


def to_junit(record: GateRecord) -> str:
    """JUnit XML with one case: regressed and parity fail, invalid and error are errors, inconclusive is skipped."""
    outcome = _outcome(record)
    tags = {
        "regressed": "failure",
        "parity": "failure",
        "invalid": "error",
        "error": "error",
        "inconclusive": "skipped",
    }
    tag = tags.get(outcome.kind) if outcome.exit_code else None  # what measures the noise fails by no verdict
    counts = {what: str(int(tag == name)) for what, name in _JUNIT_COUNTS}
    seconds = f"{(record.ended_at or record.started_at) - record.started_at:.3f}"
    suite = ElementTree.Element("testsuite", {"name": "laptime gate", "tests": "1", "time": seconds, **counts})
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"gate.{_xml(record.workload)}", name=_xml(record.variant) or "epoch", time=seconds
    )
    if tag is not None:
        found = ElementTree.SubElement(case, tag, type=outcome.kind, message=_xml(outcome.sentence))
        found.text = _xml(record.trouble.log) if record.trouble else ""
    ElementTree.SubElement(case, "system-out").text = _xml(f"{outcome.sentence}\n{words.conditions(record)}")
    whole = ElementTree.Element("testsuites")
    whole.append(suite)
    ElementTree.indent(whole)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(whole, encoding="unicode") + "\n"


_JUNIT_COUNTS = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))


def to_annotation(record: GateRecord) -> str:
    """One workflow command that GitHub shows beside the checks."""
    outcome = _outcome(record)
    level = _LEVELS.get(outcome.kind, "error") if outcome.exit_code else "notice"
    title = f"laptime gate {record.workload}: {words.TITLES[outcome.kind]}"
    return f"::{level} title={_property(title)}::{_message(outcome.sentence)}"


def to_json(record: GateRecord) -> str:
    """The record; `--replay` reads it."""
    return record.model_dump_json(by_alias=True, indent=1) + "\n"


REPORTS: tuple[tuple[str, Callable[[GateRecord], str]], ...] = (
    ("json", to_json),
    ("junit", to_junit),
    ("markdown", to_markdown),
)


def check_places(places: dict[str, Path | None]) -> None:
    """Refuses a place for a report that can't be one, before hours are spent on it; raises UsageError."""
    for name, path in places.items():
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            reason = "it is a folder" if path.is_dir() else ""
            if not os.access(path.parent, os.W_OK):
                reason = f"{path.parent} is not writable"
        except OSError as error:
            reason = str(error.strerror)
        if reason:
            raise UsageError(f"--{name} {shorten(str(path))!r} can't be written ({reason}): give another file.")


def write_reports(record: GateRecord, places: dict[str, Path | None]) -> None:
    """Writes each report whose place is given, beside and renamed, so that a reader never sees half a file."""
    for name, render in REPORTS:
        path = places.get(name)
        if path is None:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, render(record))


def _outcome(record: GateRecord) -> Outcome:
    assert record.outcome is not None, "a gate is reported after it is concluded"
    return record.outcome


def _cause(outcome: Outcome) -> str:
    cause = outcome.cause
    assert cause is not None
    base, head = words.seconds(cause.base_s), words.seconds(cause.head_s)
    share = f"{cause.share * 100:.0f} % of all growth"
    return f"what grew: `{_code(cause.part)}`, from {base} to {head} s of an epoch ({share})"


def _checks(outcome: Outcome) -> list[str]:
    if not outcome.checks:
        return []
    lines = ["", "| beside the epoch | base | head | limit | |", "|---|---:|---:|---|---|"]
    for check in outcome.checks:
        base, head = words.figure(check)
        sign = {True: "within", False: "**beyond**", None: ""}[check.ok]
        lines.append(f"| {escape(check.name)} | {base} | {head} | {check.limit} | {sign} |")
    return lines


def _pairs(record: GateRecord) -> list[str]:
    if not record.pairs:
        return []
    lines = ["", f"<details><summary>{words.pairs(len(record.pairs))}</summary>", ""]
    lines += ["| pair | first | seed | base, s | head, s | head/base | |", "|---:|---|---:|---:|---:|---:|---|"]
    for pair in record.pairs:
        times = [words.seconds(math.exp(p.z)) for p in (pair.base, pair.head)]
        remark = "; ".join((*pair.flags, *(() if pair.counted else ("repeated, not counted",))))
        cells = (
            str(pair.number),
            _FIRST[pair.order],
            str(pair.seed),
            *times,
            words.percent(words.ratio(pair)),
            escape(remark),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "</details>"]


def _side(sha: str, dirty: bool) -> str:
    name = f"`{_code(sha[:12])}`" if sha else "outside version control"
    return f"{name} with changes that are not committed" if dirty else name


def _indented(log: str) -> list[str]:
    """A log as a code block by indentation, which no text inside can end."""
    return ["    " + "".join(c if c.isprintable() else " " for c in line) for line in log.splitlines()[-40:]]


def _code(text: str) -> str:
    return "".join(c if c.isprintable() and c not in "`|<>@" else "'" for c in text)


def _xml(text: str) -> str:
    """XML 1.0 has no control characters, not even escaped."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
