"""Advice at a ladder's end: by variant and of the whole; nothing in it costs the ladder its results."""

import json

import pytest
from tests.unit.ladder.advised import STEPS, a_finding, a_run, forgetful, make_ladder, the_advice, through

from laptime.advice import signals_of
from laptime.cli.ladder_view import closing_words
from laptime.compare.advising import next_step, worth
from laptime.ladder.advising import MARKDOWN, Rules, merged, over_rounds
from laptime.records import (
    Advice,
    Breakdown,
    EpochRecord,
    Machine,
    Measured,
    ProfileRecord,
    Quartiles,
    RunRecord,
    SetupRecord,
    TraceSummary,
    write_json,
)

BASELINE, RESIDENT = "cpu-baseline", "cpu-resident"


def trace_of() -> TraceSummary:
    return TraceSummary(step_ms=Quartiles(low=9, median=10, high=11), step_mean_ms=10, steps=5)


def test_each_variant_s_advice_stands_in_its_run_folder_and_the_ladder_s_on_the_parent(tmp_path, monkeypatch):
    findings = {
        BASELINE: (a_finding("data", gain=(0.4, 0.4)),),
        RESIDENT: (a_finding("taps", f"{RESIDENT}+dead-taps"),),
    }
    ladder = make_ladder(tmp_path, monkeypatch, the_advice(findings), verify_advice=False)
    assert not [t for t in through(ladder) if "verification" in t]
    for name in (BASELINE, RESIDENT):
        folder = ladder.folder / f"{name}-0"
        assert json.loads((folder / "advice.json").read_text())["subject"] == name
        assert (folder / MARKDOWN).read_text().startswith(f"Look at {name}.")
    whole = Advice.model_validate(json.loads((ladder.folder / "advice.json").read_text()))
    # What builds on the fastest variant comes first, however much the baseline would gain.
    assert [(f.id, f.evidence) for f in whole.findings] == [
        ("taps", (f"Seen on {RESIDENT}.",)),
        ("data", (f"Seen on {BASELINE}.",)),
    ]
    journal = (ladder.places.journal / "l.jsonl").read_text()
    assert f"{ladder.folder}/advice.md" in journal
    assert f"{ladder.folder}/{BASELINE}-0/advice.json" in journal


def test_the_ladder_s_advice_goes_on_from_no_variant_that_is_worse(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({}), run=forgetful, verify_advice=False)
    through(ladder)
    assert ladder.counsel.best == BASELINE
    assert json.loads((ladder.folder / "advice.json").read_text())["verdict"] == f"Look at {BASELINE}."


def test_the_rules_get_record_profile_history_and_probe(tmp_path, monkeypatch):
    given = {}

    def advise(record, trace, history, probe):
        given[record.spec.variant] = (record.status, trace, history, probe)
        return Advice()

    ladder = make_ladder(tmp_path, monkeypatch, Rules(advise, str), verify_advice=False)
    write_json(ladder.folder / f"{BASELINE}-0" / "profile" / "breakdown.json", trace_of())
    through(ladder)
    assert given == {
        BASELINE: ("done", trace_of(), {}, ladder.record.probe),
        RESIDENT: ("done", None, {}, ladder.record.probe),
    }
    assert ladder.counsel.traces == {BASELINE: trace_of()}
    # Asking for the rules' history makes no store.
    assert not (ladder.places.home / "mlflow.db").exists()


def test_advice_that_crashes_is_a_notice_and_the_others_go_on(tmp_path, monkeypatch):
    def advise(record, trace, history, probe):
        if record.spec.variant == BASELINE:
            raise ZeroDivisionError("no steps")
        return Advice(findings=(a_finding("f"),), verdict="Look elsewhere.")

    said = []
    ladder = make_ladder(tmp_path, monkeypatch, Rules(advise, lambda _: "text"))
    ladder.say = said.append
    through(ladder)
    assert said == [
        f"NOTICE: no advice can be given on {BASELINE}: ZeroDivisionError: no steps",
        f"Nothing to verify on {RESIDENT}: Look elsewhere.",
    ]
    assert list(ladder.counsel.advice) == [RESIDENT]
    assert ladder.comparison is not None
    assert ladder.record.status == "done"


def test_advice_that_can_not_be_written_costs_nothing_else(tmp_path, monkeypatch):
    def broken(_):
        raise ValueError("no words")

    said = []
    ladder = make_ladder(tmp_path, monkeypatch, Rules(the_advice({}).advise, broken), verify_advice=False)
    ladder.say = said.append
    through(ladder)
    assert said == ["NOTICE: the advice can't be written: ValueError: no words"]
    assert ladder.record.status == "done"


def test_a_damaged_breakdown_is_named_and_left_out(tmp_path, monkeypatch):
    said = []
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({}), verify_advice=False)
    ladder.say = said.append
    path = ladder.folder / f"{BASELINE}-0" / "profile" / "breakdown.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": "laptime.tra')
    through(ladder)
    assert len(said) == 1
    assert "breakdown.json" in said[0]
    assert set(ladder.counsel.advice) == {BASELINE, RESIDENT}


def test_a_ladder_without_a_run_that_is_done_has_no_advice(tmp_path, monkeypatch):
    ladder = make_ladder(
        tmp_path, monkeypatch, the_advice({}), lambda spec: RunRecord(status="failed", error="boom", spec=spec)
    )
    through(ladder)
    assert ladder.counsel.merged() is None
    assert not list(ladder.folder.rglob("advice.json"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    ladder.request = ladder.request.model_copy(update={"tracking_uri": None})
    assert closing_words(ladder).startswith("\nReport:")
    assert "laptime ui\nTensorBoard" in closing_words(ladder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////there/m.db")
    assert "\nMLflow:          MLFLOW_TRACKING_URI=sqlite:////there/m.db " in closing_words(ladder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:word@there")
    assert "\nMLflow:          https://***@there\nTensorBoard" in closing_words(ladder)


def test_the_same_remedy_stands_once_but_for_verified_ones():
    on_best, on_other = a_finding("taps", "cpu-b+dead-taps"), a_finding("taps", "cpu-a+dead-taps", (0.8, 0.9))
    advice = {"cpu-a": Advice(findings=(on_other,), notices=("x",)), "cpu-b": Advice(findings=(on_best,), verdict="v")}
    whole = merged("l", advice, ("cpu-b", set()))
    assert [f.variant for f in whole.findings] == ["cpu-b+dead-taps"]
    assert (whole.subject, whole.verdict, whole.notices) == ("l", "v", ("On cpu-a: x",))
    alike = {name: mine.model_copy(update={"notices": ("x",)}) for name, mine in advice.items()}
    assert merged("l", alike, ("cpu-b", set())).notices == ("x",)
    seen = on_other.model_copy(update={"measured": Measured(gain=0.7, n=3)})
    whole = merged("l", {**advice, "cpu-a": Advice(findings=(seen,))}, ("cpu-b", set()))
    assert [f.variant for f in whole.findings] == ["cpu-b+dead-taps", "cpu-a+dead-taps"]
    # One that was not run says nothing that the one that was does not say better.
    on_third = a_finding("taps", "cpu-c+dead-taps")
    whole = merged(
        "l",
        {"cpu-b": Advice(), "cpu-a": Advice(findings=(seen,)), "cpu-c": Advice(findings=(on_third,))},
        ("cpu-b", set()),
    )
    assert [f.variant for f in whole.findings] == ["cpu-a+dead-taps"]


def test_a_remedy_that_is_written_out_is_the_same_remedy_and_what_the_best_has_is_no_advice():
    written = a_finding("taps", "cpu-baseline+resident+dead-taps")
    advice = {"cpu-b": Advice(findings=(a_finding("taps", "cpu-b+dead-taps"),)), "cpu-a": Advice(findings=(written,))}
    assert len(merged("l", advice, ("cpu-b", {"resident"})).findings) == 1
    has = {"cpu-b": Advice(), "cpu-a": Advice(findings=(a_finding("data", "cpu-a+resident"),))}
    assert merged("l", has, ("cpu-b", {"resident"})).findings == ()
    assert len(merged("l", has, ("cpu-b", set())).findings) == 1


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (None, 0.1),
        (Measured(gain=0.25, n=3), 0.25),
        (Measured(gain=-0.1, n=3), -0.1),
        (Measured(gain=0.25, n=3, quality_kept=False), 0.0),
        (Measured(error="it failed"), 0.0),
    ],
)
def test_a_measured_gain_counts_more_than_a_predicted_one(measured, expected):
    finding = a_finding("f", gain=(0.1, 0.3)).model_copy(update={"measured": measured})
    assert worth(finding) == pytest.approx(expected)


def test_the_comparison_ends_with_the_best_finding_and_its_command(tmp_path, monkeypatch):
    findings = (a_finding("small\x1b[1m", gain=(0.04, 0.05)), a_finding("taps", f"{RESIDENT}+dead-taps"))
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({RESIDENT: findings}))
    through(ladder)
    comparison = ladder.compare()
    words = next_step(comparison)
    assert words.startswith(f"Next, for {RESIDENT}: taps is slow (")
    assert "measured: " in words
    assert words.endswith(f"laptime run cifar --variant {RESIDENT}+dead-taps")
    measured = {f.id: f.measured for f in comparison.advice[RESIDENT].findings}
    assert measured["taps"].n == 3


def test_without_a_finding_that_helps_the_verdict_is_said(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({RESIDENT: (a_finding("slow", f"{RESIDENT}+keep-pages"),)}))
    through(ladder)
    assert "Look at cpu-resident. Verified: 0 of 1 remedies" in next_step(ladder.compare())


def test_advice_rests_on_the_epochs_of_all_rounds(tmp_path, monkeypatch):
    given = {}

    def advise(record, *_):
        given[record.spec.variant] = signals_of(record)
        return Advice()

    def run(spec):
        """The first process fell into a slow minute of a machine that somebody else used."""
        step_ms = (130.0, 100.0, 104.0)[spec.repeat]
        broken = Breakdown(
            steps=STEPS,
            step_ms=Quartiles(low=step_ms, median=step_ms, high=step_ms + 1),
            parts_ms={"data": Quartiles(low=1, median=step_ms / 2, high=3)},
        )
        epochs = tuple(e.model_copy(update={"breakdown": broken}) for e in a_run(spec).epochs)
        first = spec.repeat == 0
        return RunRecord(
            status="done",
            spec=spec,
            epochs=epochs,
            machine=Machine(cores=2, load_before=(9.0, 1.0, 2.0)[spec.repeat]),
            profile=ProfileRecord(schedule="1,2,5,1", floor_ms=52.0, floor_share=0.4) if first else None,
            setup=SetupRecord(loader="items") if first else None,
        )

    ladder = make_ladder(tmp_path, monkeypatch, Rules(advise, str), run, verify_advice=False, repeats=3)
    through(ladder)
    found = given[BASELINE]
    assert (found.step_ms, found.wait_ms, found.load) == (104.0, 52.0, 2.0)
    assert found.floor_share == pytest.approx(0.5)
    assert found.loader == "items"
    assert found.noise == pytest.approx(1 / 104, rel=0.1)


def test_what_a_profile_holds_over_its_step_is_of_the_step_of_all_rounds():
    def of(step_ms, **more):
        epochs = (EpochRecord(index=0, epoch_s=1.0, samples=100, steps=10, step_ms_median=step_ms),)
        return RunRecord(status="done", epochs=epochs, **more)

    profile = ProfileRecord(schedule="1,2,5,1", step_ms=44.0, ratio=1.1, floor_share=0.5, mfu=0.4)
    first = of(40.0, profile=profile)
    found = over_rounds(first, [first, of(80.0), of(100.0)]).profile
    assert found.step_ms == 44.0
    assert (found.ratio, found.floor_share, found.mfu) == pytest.approx((0.55, 0.25, 0.2))
    assert over_rounds(of(40.0), [first]).profile is None
