"""Names of variants, classes, machines, branches and commits in every report: shown, and harmless."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from compare_examples import STEPS, ladder, records
from rich.console import Console
from tests.unit.gate.gate_examples import gate

from laptime.advice.text import to_markdown as advice_to_markdown
from laptime.advice.text import to_text
from laptime.compare.comparison import compare
from laptime.compare.curves import curves
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.plots import curves_svg, speedup_svg
from laptime.compare.terminal import print_comparison
from laptime.gate.conclude import conclude
from laptime.gate.records import GateRecord, Trouble
from laptime.gate.reports import to_annotation, to_junit
from laptime.gate.reports import to_markdown as gate_to_markdown
from laptime.records import Advice, Finding, LadderRecord, RunRecord, Withheld

NAMES = {
    "HTML": "<script>alert(1)</script><img src=x onerror=y>",
    "an attribute": "\"'><b onmouseover=alert(1)>",
    "a terminal's codes": "\x1b[31m\x1b]0;title\x07\x9b2J",
    "lines": "a\nb\r\n::error::c\u2028d",
    "a workflow's command": "::set-output name=x::y%0A",
    "writing turned round": "\u202egnp.exe\u2066\u200f",
    "Markdown": "![x](http://evil/x)[y](javascript:z)|`code`*b*@everyone#1",
    "a path": "../../../etc/passwd",
    "a NUL": "a\0b",
    "10,000 letters": "n" * 10_000,
    "a template": "{{ 7 * 7 }}{% raw %}${x}",
    "mathematics": "$\\frac{1}{0}$ $x_",
    "XML": "]]><!ENTITY x SYSTEM 'file:///etc/passwd'>&x;",
}


def with_names(name: str) -> tuple[LadderRecord, list[RunRecord]]:
    """A ladder whose every foreign word is the name."""
    odd = f"cpu-optimized+{name}"
    planned = ladder()
    changed = {"variant": odd, "reason": name}
    rungs = [r.model_copy(update=changed) if r.variant == "cpu-bf16" else r for r in planned.rungs]
    told = {"notice": name, "classes": (name, "b"), "asked": name, "kind": "synthetic"}
    notice = planned.data.model_copy(update=told)
    machine = planned.probe.machine.model_copy(update={"cpu": name, "torch": name, "gpus": (name,)})
    found = []
    for record in records():
        assert record.spec is not None
        changes: dict[str, object] = {"machine": machine, "notes": (name,), "cautions": (name,), "commit": name}
        if record.spec.variant == "cpu-bf16":
            changes["spec"] = record.spec.model_copy(update={"variant": odd, "data": notice})
        if record.status != "done":
            changes["error"] = name
        found.append(record.model_copy(update=changes))
    told = {"rungs": tuple(rungs), "data": notice, "commit": name, "workload": name, "id": name}
    return planned.model_copy(update=told), found


def plain(text: str) -> None:
    """No control character but the line's end, and no mark that turns the writing round."""
    assert text.replace("\n", "").replace("\t", "").isprintable()


def untagged(text: str) -> None:
    plain(text)
    for tag in ("<script", "<img", "<b ", "<!ENTITY"):
        assert tag not in text


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_in_a_comparison(name: str) -> None:
    planned, runs = with_names(name)
    found = compare(planned, runs)
    markdown = to_markdown(found)
    untagged(markdown)
    outside = re.sub(r"(?<!\\)`[^`]*`", "", markdown)
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert "@everyone" not in markdown
    page = to_html(found, planned, runs)
    assert "<script" not in page
    assert "<img" not in page
    assert "<b " not in page
    assert not set(page) & set("\0\x1b\x07\x9b\u202e\u2066\u200f")
    assert "{{ 7 * 7 }}" in page or "{{" not in name  # the template's own language is text, too
    screen = io.StringIO()
    print_comparison(found, Console(file=screen, width=120, color_system=None))
    plain(screen.getvalue())
    for drawing in (speedup_svg(found), curves_svg(found, curves(found, runs))):
        ElementTree.fromstring(drawing)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_in_a_gate(name: str) -> None:
    whole = gate()
    side = whole.base.model_copy(update={"ref": name, "sha": name, "folder": name})
    pairs = tuple(p.model_copy(update={"flags": (name,)}) for p in whole.pairs)
    odd: GateRecord = whole.model_copy(
        update={
            **dict.fromkeys(("workload", "variant", "noise_source", "advisory", "id"), name),
            "base": side,
            "head": side,
            "pairs": pairs,
            "notices": (name,),
            "trouble": Trouble(kind="error", reason=name, log=f"{name}\n{name}"),
        }
    )
    odd = odd.model_copy(update={"outcome": conclude(odd)})
    markdown = gate_to_markdown(odd)
    outside = "\n".join(line for line in markdown.splitlines() if not line.startswith("    "))  # a log is a block
    untagged(outside)
    assert "@everyone" not in outside
    plain(markdown)
    ElementTree.fromstring(to_junit(odd))
    assert "\n" not in to_annotation(odd).strip()


RENDERED: tuple[Callable[[Advice], str], ...] = (to_text, advice_to_markdown)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_in_advice(name: str) -> None:
    finding = Finding(
        id=name, what=name, evidence=(name,), lines=(name,), step_ms_now=1, step_ms_expected=(1, 2), gain=(0.1, 0.2)
    )
    advice = Advice(subject=name, verdict=name, findings=(finding,), withheld=(Withheld(id=name, reason=name),))
    for render in RENDERED:
        plain(render(advice))
    untagged(advice_to_markdown(advice))


def test_the_examples_hold_what_is_renamed() -> None:
    assert "cpu-bf16" in {name for name, *_ in STEPS}
