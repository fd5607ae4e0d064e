"""Where a step goes, inference, the ceiling, operators and advice: from records to every report."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from compare_examples import compare_records, epochs, ladder, record, records
from inside_examples import advice, around, inside, profile, trace, traces, with_ranks
from rich.console import Console

from laptime.cli.compare import compare_runs
from laptime.compare import advising, operators, steps, tables, words
from laptime.compare.comparison import Comparison, compare
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.parts import parts_of
from laptime.compare.sides import load_sides
from laptime.compare.terminal import to_terminal
from laptime.compare.write import write_comparison
from laptime.records import Advice, Breakdown, Finding, Measured, Quartiles, RunRecord, TraceSummary, write_json

HOSTILE = "<script>alert(1)</script>|[x](javascript:1)`$a$\x1b[31m@team"


@pytest.fixture(scope="module")
def example() -> Comparison:
    return compare(ladder(), inside(records()), traces(), advice())


def of_steps(*medians: float, **fields: object) -> RunRecord:
    """A record whose epochs have steps of these medians, half of each spent on data."""
    run = record("cpu-baseline", 10.0)
    found = [
        Breakdown(steps=4, step_ms=around(m), parts_ms={"data": around(m / 2)}, mean_ms={"data": m / 2, "rest": m / 2})
        for m in medians
    ]
    laps = [e.model_copy(update={"breakdown": b}) for e, b in zip(epochs(10.0, 0.6, len(found)), found, strict=True)]
    return run.model_copy(update={"epochs": tuple(laps), **fields})


def test_a_step_is_the_median_over_kept_epochs_of_all_processes() -> None:
    first, second = of_steps(10.0, 12.0), of_steps(14.0, 90.0)
    dropped = tuple(e.model_copy(update={"kept": e.index == 0}) for e in second.epochs)
    (row,) = compare_records([first, second.model_copy(update={"epochs": dropped})]).steps
    assert (row.epochs, row.steps) == (3, 12)
    assert row.step_ms == Quartiles(low=12.0 * 0.97, median=12.0, high=12.0 * 1.03)
    assert row.parts_ms == {"data": 6.0}
    assert row.shares == {"data": 0.5, "rest": 0.5}


def test_what_no_record_holds_is_neither_shown_nor_zero() -> None:
    comparison = compare(ladder(), records())
    assert (comparison.steps, comparison.inference, comparison.roof, comparison.operators) == ((), (), (), ())
    page, text = to_html(comparison, ladder(), records()), to_markdown(comparison)
    for title in (steps.TITLE, steps.INFERENCE_TITLE, steps.ROOF_TITLE, operators.TITLE, advising.TITLE):
        assert f"<h2>{title}</h2>" not in page
        assert f"**{title}" not in text
    (row,) = compare_records([of_steps(10.0)]).steps
    assert row.worker_start_s is row.first_batch_s is row.skew_s is None
    assert steps.beside([row]) == [["variant"], ["cpu-baseline"]]
    one = row.model_copy(update={"drain_s": 0.25})
    assert steps.beside([row, one]) == [
        ["variant", "last wait for the GPU"],
        ["cpu-baseline", words.NONE],
        ["cpu-baseline", "0.250"],
    ]


def test_a_variant_that_is_wrong_shows_no_step() -> None:
    assert compare_records([of_steps(10.0, status="wrong"), record("cpu-x", 9.0)]).steps == ()


def test_the_plot_of_an_epoch_is_fed_from_the_same_steps() -> None:
    epoch = of_steps(10.0).epochs[0]
    assert epoch.breakdown is not None
    late = epoch.breakdown.model_copy(update={"first_batch_s": 0.2 * epoch.epoch_s})
    found = parts_of([epoch.model_copy(update={"breakdown": late, "parts_s": {"forward": 99.0}})])
    assert found == pytest.approx({"first_batch": 0.2, "data": 0.4, "rest": 0.4})


def test_ranks_stand_beside_each_other_with_their_skew() -> None:
    (row,) = compare_records([with_ranks(record("cpu-ddp-baseline", 60.0))]).steps
    assert [r.rank for r in row.ranks] == [0, 1]
    assert row.ranks[1].step_ms == pytest.approx(1.08 * row.ranks[0].step_ms)
    assert row.skew_share == pytest.approx(1 - 1 / 1.08)
    first, second = steps.rank_rows([row])
    assert first[-1].endswith("s (7.4 %)")
    assert second[-1] == ""


def test_inference_is_the_median_over_processes(example: Comparison) -> None:
    rows = [r for r in example.inference if r.variant == "cpu-optimized"]
    assert [r.batch_size for r in rows] == [1, 512]
    assert rows[0].pass_ms.median == 3.2
    assert steps.inference_sizes(example.inference) == [1, 32, 512]


def test_a_share_above_the_ceiling_is_said_and_not_cut(example: Comparison) -> None:
    row = next(r for r in example.roof if r.variant == "cpu-optimized")
    (cells,) = steps.roof_cells_of([row])
    assert cells[4] == "104.0 %"
    assert cells[-1] == "ceiling underestimated"
    noted = row.model_copy(update={"notes": ("the ceiling is underestimated",)})
    assert steps.roof_cells_of([noted])[0][-1] == "the ceiling is underestimated"
    assert steps.roof_cells_of([row.model_copy(update={"mfu": 0.9})])[0][-1] == ""


def test_memory_is_that_of_the_fullest_process() -> None:
    runs = [of_steps(10.0, profile=profile(v, 10.0)) for v in ("cpu-baseline", "cpu-optimized")]
    (row,) = compare_records(runs).roof
    assert row.memory_mib["activations"] == 412.0


def test_operators_are_ranked_by_self_time_and_wrappers_folded(example: Comparison) -> None:
    assert [(t.variant, t.role) for t in example.operators] == [
        ("cpu-baseline", "baseline"),
        ("cpu-optimized", "fastest"),
        ("cpu-resident", ""),
    ]
    table = example.operators[0]
    assert len(table.rows) == operators.SHOWN
    assert [r.name for r in table.rows][:2] == ["aten::convolution_backward", "aten::mkldnn_convolution"]
    assert "aten::conv2d" not in {r.name for r in table.rows}
    assert table.left == 4
    assert operators.share(table.rows[0], table) == pytest.approx(15.2 / 54)


def test_a_wrapper_that_spends_time_keeps_its_row() -> None:
    found = trace(10.0, (("aten::mkldnn_convolution", "", 1, 5.0, "", "conv"), ("aten::conv2d", "", 1, 1.0, "", "")))
    comparison = compare(ladder(), records(), {"cpu-baseline": found})
    assert [r.name for r in comparison.operators[0].rows][:2] == ["aten::mkldnn_convolution", "aten::conv2d"]


def test_on_a_gpu_the_device_ranks() -> None:
    rows = tuple(
        r.model_copy(update={"device_self_ms": 2.0 / (place + 1), "self_ms": float(place)})
        for place, r in enumerate(trace(10.0, [("a", "", 1, 1, "", ""), ("b", "", 1, 1, "", "")]).operators[:2])
    )
    found = TraceSummary(device="cuda", step_ms=around(10.0), step_mean_ms=10.0, operators=rows)
    (table,) = compare(ladder(), records(), {"cpu-baseline": found}).operators
    assert [r.name for r in table.rows] == ["a", "b"]
    assert operators.share(table.rows[0], table) == pytest.approx(0.2)
    titles = [title for title, _ in operators.columns([table])]
    assert len(operators.cells(table.rows[0], table)) == len(titles) - 2
    assert "device ms" in titles


def test_every_column_is_explained_on_the_page(example: Comparison) -> None:
    page = to_html(example, ladder(), inside(records()))
    for title, sentence in operators.columns(example.operators):
        assert re.search(rf"<dt>{title}</dt><dd>[^<]{{20,}}</dd>", page), title
        assert sentence.endswith(".")


def test_the_profiler_s_own_tables_of_baseline_and_fastest_are_on_the_page(example: Comparison, tmp_path: Path) -> None:
    for variant in {t.variant for t in example.operators}:
        place = tmp_path / f"{variant}-0" / "profile"
        place.mkdir(parents=True)
        (place / "memory.txt").write_text(f"of {variant}\nname <b>\x1b[31m  Self CPU Mem\n")
        (place / "inference.txt").write_text("3 passes of 32 samples\n")
    write_comparison(example, ladder(), inside(records()), tmp_path)
    page = (tmp_path / "comparison.html").read_text()
    open_ones = [t.variant for t in example.operators if t.role]
    assert [v for v in (t.variant for t in example.operators) if f">of {v}\n" in page] == open_ones
    assert "name &lt;b&gt; [31m  Self CPU Mem\n" in page
    assert page.count("3 passes of 32 samples") == len(open_ones) == 2
    for title, sentence in tables.COLUMNS:
        assert f"<dt>{title}</dt><dd>{sentence}</dd>" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "As torch’s profiler prints them" not in to_html(example, ladder(), inside(records()))


def a_finding(**fields: object) -> Finding:
    told = {"id": "x", "what": "Do it.", "step_ms_now": 40.0, "step_ms_expected": (28.0, 31.0), "gain": (0.22, 0.3)}
    return Finding.model_validate(told | fields)


def test_predicted_stands_beside_measured() -> None:
    found = Measured(step_ms=30.0, step_ms_before=40.0, gain=0.25, gain_low=0.2, gain_high=0.29, n=3)
    assert advising.measured(found) == "30.0 ms instead of 40.0 ms, 25 % less (+20 to +29 %), n = 3, quality not judged"
    slower = Measured(step_ms=44.0, gain=-0.1, gain_low=-0.12, gain_high=0.02, n=2, quality_kept=False)
    assert advising.measured(slower) == "44.0 ms, 10 % more (−2 to +12 %), n = 2, quality lost"
    assert advising.measured(Measured(error="it ran out of memory.")) == "not measured: it ran out of memory"
    assert advising.measured(None) == ""
    assert advising.expected(a_finding()) == "28.0–31.0 ms instead of 40.0 ms"


def test_the_next_step_goes_on_from_the_fastest(example: Comparison) -> None:
    assert advising.next_step(example) == (
        "Next, for cpu-optimized: Little is left: at most 29 % above the machine's ceiling."
    )
    failed = a_finding(command="laptime run cifar --variant w", measured=Measured(error="it failed"))
    seen = Measured(step_ms=32.0, step_ms_before=40.0, gain=0.2, n=3)
    findings = (failed, a_finding(command="laptime run cifar --variant x", measured=seen))
    told = {**advice(), "cpu-optimized": Advice(findings=findings)}
    assert advising.next_step(compare(ladder(), records(), advice=told)) == (
        "Next, for cpu-optimized: Do it (28.0–31.0 ms instead of 40.0 ms, 22–30 % less); measured: 32.0 ms "
        "instead of 40.0 ms, 20 % less, n = 3, quality not judged: laptime run cifar --variant x"
    )
    assert advising.next_step(compare(ladder(), records())) == ""


def test_the_terminal_lists_each_remedy_that_was_run() -> None:
    seen = Measured(gain=0.2, n=3, quality_kept=True, quality="quality better: +3.0 pp")
    ran = [a_finding(variant="cpu-x", measured=seen), a_finding(variant="cpu-y", measured=Measured(error="it failed"))]
    told = {"cpu-optimized": Advice(findings=(a_finding(variant="cpu-z"), *ran))}
    out = io.StringIO()
    Console(width=200, file=out).print(to_terminal(compare(ladder(), records(), advice=told), 200))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    first = lines.index("Verified advice") + 1
    assert lines[first : first + 3] == [
        "cpu-x beside cpu-optimized: predicted 22–30 % less, measured 20 % less, n = 3, quality better: +3.0 pp.",
        "cpu-y beside cpu-optimized: predicted 22–30 % less, not measured: it failed.",
        "",
    ]


def test_the_terminal_ends_with_it(example: Comparison) -> None:
    out = io.StringIO()
    Console(width=110, file=out).print(to_terminal(example, 110))
    assert out.getvalue().rstrip().endswith("Little is left: at most 29 % above the machine's ceiling.")


def test_foreign_words_are_escaped_everywhere() -> None:
    spiteful = Advice(
        verdict=HOSTILE,
        findings=(
            a_finding(
                what=HOSTILE, evidence=(HOSTILE, 2 * HOSTILE), lines=(HOSTILE,), command=HOSTILE, measured_by=HOSTILE
            ),
        ),
        notices=(HOSTILE,),
    )
    operator = trace(10.0, ((HOSTILE, HOSTILE, 1, 5.0, HOSTILE, ""),))
    comparison = compare(ladder(), records(), {"cpu-baseline": operator}, {"cpu-baseline": spiteful})
    page, text = to_html(comparison, None, records()), to_markdown(comparison)
    assert "<script" not in page
    assert "<script" not in re.sub(r"(?<!\\)`[^`\n]*`", "", text)
    assert "\x1b" not in text
    table = [line for line in text.splitlines() if line.startswith("| `cpu-baseline` | ") and "28.0" in line]
    assert len(re.findall(r"(?<!\\)\|", table[0])) == len(advising.SHORT) + 1


def test_a_change_of_code_is_shown_as_code_with_what_measures_it() -> None:
    change = a_finding(what="Write `x.unbind(1)  # 24 %`.", command="x.unbind(1)", measured_by="laptime gate f.py:w")
    comparison = compare(ladder(), records(), {}, {"cpu-baseline": Advice(findings=(change,))})
    page = to_html(comparison, None, records())
    assert "Write <code>x.unbind(1)  # 24 %</code>." in page
    assert '<p class="said">Measure it, before you commit:</p>\n<pre tabindex="0">laptime gate f.py:w</pre>' in page


def test_files_beside_the_records_are_read(tmp_path: Path) -> None:
    runs = [record("cpu-baseline", 85.0), record("cpu-x", 40.0)]
    for run in runs:
        assert run.spec is not None
        write_json(tmp_path / run.spec.variant / "record.json", run)
    write_json(tmp_path / "cpu-baseline" / "profile" / "breakdown.json", traces()["cpu-baseline"])
    write_json(tmp_path / "cpu-x" / "advice.json", advice()["cpu-baseline"])
    (tmp_path / "cpu-x" / "profile").mkdir()
    (tmp_path / "cpu-x" / "profile" / "breakdown.json").write_text('{"schema": "laptime.trace/0"}')
    comparison, _, _ = compare_runs([str(tmp_path)])
    assert [t.variant for t in comparison.operators] == ["cpu-baseline"]
    assert list(comparison.advice) == ["cpu-x"]
    (told,) = [c for c in comparison.cautions if "breakdown" in c]
    assert "laptime.trace/0" in told
    assert list(load_sides(tmp_path / "cpu-x" / "record.json").advice) == ["cpu-x"]


def test_two_ladders_keep_what_belongs_to_each(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_json(tmp_path / name / "ladder.json", ladder().model_copy(update={"id": name}))
        write_json(tmp_path / name / "a" / "record.json", record("cpu-baseline", 85.0))
        told = advice()["cpu-baseline"].model_copy(update={"verdict": name})
        write_json(tmp_path / name / "a" / "advice.json", told)
        write_json(tmp_path / name / "trials" / "b" / "record.json", record("cpu-tried", 1.0))
        write_json(tmp_path / name / "trials" / "b" / "advice.json", told)
    comparison, _, _ = compare_runs([str(tmp_path / "one"), str(tmp_path / "two")])
    assert {v: a.verdict for v, a in comparison.advice.items()} == {
        "cpu-baseline @ one": "one",
        "cpu-baseline @ two": "two",
    }


def test_variants_of_one_verdict_share_a_line(example: Comparison) -> None:
    names = list(example.advice)
    same = {n: a.model_copy(update={"verdict": "Little is left."}) for n, a in example.advice.items()}
    text = to_markdown(example.model_copy(update={"advice": same}))
    assert text.count("Little is left.") == 1
    (line,) = [line for line in text.splitlines() if "Little is left." in line]
    assert len(names) > 1
    assert all(f"`{name}`" in line for name in names)


def test_the_data_file_holds_what_is_shown(example: Comparison) -> None:
    fields = json.loads(example.model_dump_json(by_alias=True))
    assert Comparison.model_validate(fields) == example
    assert fields["advice"]["cpu-baseline"]["findings"][0]["measured"]["n"] == 3
