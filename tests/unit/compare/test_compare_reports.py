from __future__ import annotations

import io
import itertools
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from compare_examples import broken, compare_records, data, ladder, record, records
from inside_examples import advice, inside, traces
from rich.console import Console

from laptime.advice.text import escape
from laptime.compare.comparison import Comparison, compare
from laptime.compare.curves import curves
from laptime.compare.headlines import headlines
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.plots import curves_svg, parts_svg, speedup_svg
from laptime.compare.terminal import to_terminal
from laptime.compare.write import write_comparison
from laptime.errors import RunError
from laptime.records import LeftOut, RunRecord

GOLDEN = Path(__file__).parents[2] / "golden"
HOSTILE = "<script>alert(1)</script>|[x](javascript:1)![](//e.x/p)`$a$\x1b[31m@team"


def settled(comparison: Comparison) -> Comparison:
    """Replaces drawn bounds by fixed ones: random streams may change between versions of numpy."""
    rows = []
    for row in comparison.rows:
        update = {}
        for name in ("epoch_s", "speedup", "contribution"):
            if (value := getattr(row, name)) is not None and getattr(row, f"{name}_low") is not None:
                update |= {f"{name}_low": value * 0.97, f"{name}_high": value * 1.04}
        rows.append(row.model_copy(update=update))
    found = headlines(rows, comparison.baseline, comparison.conditions)
    return comparison.model_copy(update={"rows": tuple(rows), "headlines": found})


@pytest.fixture(scope="module")
def example() -> Comparison:
    return settled(compare(ladder(), inside(records()), traces(), advice()))


@pytest.fixture(scope="module")
def page(example: Comparison) -> str:
    return to_html(example, ladder(), inside(records()))


def hostile() -> tuple[Comparison, list[RunRecord]]:
    spiteful = data("synthetic", f"notice {HOSTILE}", (f"class {HOSTILE}", "b"))
    runs = []
    for run in (
        record("cpu-baseline", 85, 0.66),
        record(f"cpu-{HOSTILE}", 40, 0.66),
        broken(f"bad-{HOSTILE}", "failed", f"error {HOSTILE}"),
    ):
        assert run.spec is not None
        noted = {"spec": run.spec.model_copy(update={"data": spiteful}), "notes": (f"note {HOSTILE}",)}
        runs.append(run.model_copy(update=noted))
    return compare_records(runs), runs


def against_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("LAPTIME_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} differs: look at it, then run with LAPTIME_GOLDEN=1"


def test_golden_markdown(example: Comparison) -> None:
    against_golden("comparison.md", to_markdown(example))


def test_golden_html(page: str) -> None:
    against_golden("comparison.html", re.sub(r"<svg.*?</svg>", "<svg></svg>", page, flags=re.DOTALL))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        known = dict(attrs)
        self.ids += [known["id"] or ""] if "id" in known else []
        self.links += [known[a] or "" for a in ("href", "src", "xlink:href") if a in known]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_one_sound_file_that_reaches_nothing(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert len(tags.ids) == len(set(tags.ids))
    assert not tags.seen & {"script", "link", "img", "iframe", "object"}
    assert all(link.startswith("#") for link in tags.links)
    assert {link[1:] for link in tags.links} <= set(tags.ids)
    assert not re.search(r"url\((?!#)|@import", page)
    assert 'name="viewport"' in page
    assert "profile/trace.json.gz, in its folder and among its run’s artifacts: open it in ui.perfetto.dev" in page


def test_plots_follow_the_scheme_of_the_page(page: str) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawn)) <= {"#000000"}
    assert "var(--accent)" in drawn


def test_stand_in_banner_cannot_be_missed(page: str) -> None:
    assert "Stand-in data" not in page
    kind = ladder("synthetic", "CIFAR-10 could not be reached.")
    comparison = compare(kind, records())
    for text in (to_html(comparison, kind, records()), to_markdown(comparison)):
        assert re.search(r"Stand-in data.*CIFAR-10 could not be reached", text, flags=re.DOTALL)
    assert "CIFAR-10 could not be reached." in printed(comparison, 110)


def test_hostile_names_are_escaped_in_the_page() -> None:
    comparison, runs = hostile()
    page = to_html(comparison, None, runs)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.seen
    assert "&lt;script&gt;" in page


def test_hostile_names_are_escaped_in_markdown() -> None:
    text = to_markdown(hostile()[0])
    assert "<script" not in re.sub(r"`[^`\n]*`", "", text)
    assert not re.search(r"(?<!\\)!\[|(?<!\\)\]\((?!\\)", re.sub(r"`[^`\n]*`", "", text))
    columns = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")}
    assert len(columns) == 1
    assert "\x1b" not in text
    assert escape("a\n# b") == "a \\# b"


def test_addresses_in_markdown_lead_where_they_say() -> None:
    """With a backslash before its tilde the link to CIFAR-10 led to another place."""
    assert escape("no https://a.b/~kriz/cifar_10.gz, ~x_") == "no https://a.b/~kriz/cifar_10.gz, \\~x\\_"
    assert escape("https://a/`b`|<i>![c](d)") == "https://a/\\`b\\`\\|&lt;i&gt;\\!\\[c\\](d)"


def test_hostile_names_reach_no_terminal() -> None:
    text = printed(hostile()[0], 110)
    assert "\x1b" not in text
    assert "<script>" in text


def test_hostile_names_are_text_in_plots() -> None:
    comparison, runs = hostile()
    for svg in (speedup_svg(comparison), curves_svg(comparison, curves(comparison, runs)), parts_svg(comparison)):
        tree = ElementTree.fromstring(svg)
        assert not [e for e in tree.iter() if e.tag.endswith("script")]


def test_plots_are_the_same_each_time(example: Comparison) -> None:
    assert speedup_svg(example) == speedup_svg(example)
    found = curves(example, records())
    assert curves_svg(example, found) == curves_svg(example, found)


def test_a_comparison_without_any_time_can_be_shown(tmp_path: Path) -> None:
    runs = [broken("cpu-baseline", "failed", "boom"), broken("cpu-x", "wrong", None)]
    comparison = compare_records(runs)
    write_comparison(comparison, None, runs, tmp_path)
    assert parts_svg(comparison) == ""
    assert "no speed-up can be given" in printed(comparison, 80)


def printed(comparison: Comparison, width: int) -> str:
    text = io.StringIO()
    Console(width=width, file=text).print(to_terminal(comparison, width))
    return text.getvalue()


def as_of_a_detector(run: RunRecord) -> RunRecord:
    """The record with its accuracies as mAP at 0.5, and a third of them as mAP at 0.5 to 0.95."""
    changed = [
        e.model_copy(
            update={"test_accuracy": None, "test_map50": e.test_accuracy, "test_map": (e.test_accuracy or 0) / 3}
        )
        for e in run.epochs
    ]
    return run.model_copy(update={"epochs": tuple(changed)})


def test_a_detectors_stricter_figure_stands_beside_the_judged_one() -> None:
    runs = [as_of_a_detector(run) for run in records()]
    comparison = compare(ladder().model_copy(update={"quality": "map50"}), runs)
    row = comparison.row("cpu-optimized")
    assert row is not None
    assert row.quality is not None
    assert row.quality_strict == pytest.approx(row.quality / 3)
    both = f"{row.quality * 100:.1f} % (0.5:0.95: {row.quality_strict * 100:.1f} %)"
    assert f"| {both} | +8.0 pp better |" in to_markdown(comparison)
    assert f"{both} +8.0 pp better" in printed(comparison, 200)
    narrow = printed(comparison, 80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert f"(0.5:0.95: {row.quality_strict * 100:.1f} %)" in narrow
    page = to_html(comparison, None, runs)
    assert f"<span>0.5:0.95: {row.quality_strict * 100:.1f}\N{NO-BREAK SPACE}%</span>" in page
    assert ">test<br>mAP@0.5</th>" in page


@pytest.mark.parametrize("width", [80, 110, 160])
def test_table_fits_the_terminal(example: Comparison, width: int) -> None:
    text = printed(example, width)
    assert max(map(len, text.splitlines())) <= width
    for expected in ("6.80x", "kept", "fastest", "left out", "out of memory", "brought"):
        assert expected in text
    assert ("samples/s" in text) is (width >= 110)


def test_variants_that_were_left_out_for_one_reason_stand_together() -> None:
    given = ladder()
    left = tuple(LeftOut(variant=f"cpu-{name}", reason="too short") for name in ("flip", "crop"))
    found = compare(given.model_copy(update={"left_out": (*left, *given.left_out)}), records())
    assert "- `cpu-flip`, `cpu-crop` (left out): too short\n" in to_markdown(found)
    text = " ".join(printed(found, 120).split())
    assert "cpu-flip, cpu-crop left out: too short" in text
    assert text.count("cpu-flip") == text.count("cpu-compile") == 1  # no rows without a figure
    page = to_html(found, given, [])
    # Each name whole, since a line would break at its hyphens.
    names = "<bdi>cpu-flip</bdi>, <bdi>cpu-crop</bdi>"
    assert re.search(rf">{names}</td><td [^>]*>too short</td><td>left out</td>", page)
    assert "td bdi { white-space: nowrap; }" in page


def test_each_plot_has_words_and_each_table_its_heads(page: str) -> None:
    headings = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings))
    assert "<th>" not in page
    plots = re.findall(r'role="img" aria-label="[^"]+"><svg [^>]*aria-hidden="true"', page)
    markers = re.findall(r'<span><svg viewBox="0 0 10 10" aria-hidden="true">(<path d="[^"]+)"', page)
    assert len(plots) + len(markers) == page.count("<svg")
    assert len(set(markers)) == len(markers) == 9  # of each curve another shape: nine blues are hard to tell apart


def test_all_files_are_written_whole(example: Comparison, tmp_path: Path) -> None:
    files = write_comparison(example, ladder(), records(), tmp_path / "new")
    names = {"comparison.html", "comparison.json", "comparison.md", "speedup.svg", "curves.svg"}
    assert set(files) == names == {p.name for p in (tmp_path / "new").iterdir()}
    assert Comparison.model_validate_json(files["comparison.json"].read_text()) == example


def test_a_folder_that_cannot_be_written_is_one_sentence(example: Comparison, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"can't be written.*--out"):
        write_comparison(example, None, records(), tmp_path / "file")


def test_the_markdown_names_the_lines_of_findings(example: Comparison):
    row = next(line for line in to_markdown(example).splitlines() if "reads the loss" in line and line.startswith("|"))
    assert "The step reads the loss each time. At `train.py:31`. |" in row
    assert "<script" not in to_markdown(hostile()[0])
