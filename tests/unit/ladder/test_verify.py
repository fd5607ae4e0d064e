"""Remedies that advice proposes, run beside what it is given on; processes with given times."""

import json
from dataclasses import replace

import pytest
from tests.unit.ladder.advised import STEPS, a_finding, a_run, make_ladder, the_advice, through

from laptime.advice.judge import most_worth
from laptime.compare.load import load
from laptime.ladder.advising import with_measured
from laptime.ladder.verify import Verification
from laptime.records import Advice, Measured, RunRecord
from laptime.spec import OptimizationSpec
from laptime.tracking.events import Started, read_journal

BASELINE, RESIDENT = "cpu-baseline", "cpu-resident"


def measured_of(ladder, variant: str) -> dict:
    return {f.id: f.measured for f in ladder.counsel.advice[variant].findings}


def advice_runs(ladder) -> list[str]:
    _, events = read_journal(ladder.places.journal / "l.jsonl")
    return [e.run.key for e in events if isinstance(e, Started) and e.run.tags["laptime.kind"] == "advice"]


def test_remedies_take_turns_with_what_they_are_measured_against(tmp_path, monkeypatch):
    findings = (a_finding("taps", f"{BASELINE}+dead-taps"), a_finding("slow", f"{BASELINE}+keep-pages"))
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: findings}))
    told = through(ladder)
    turns = [t.split(", verification, ") for t in told if "verification" in t]
    there = [BASELINE, f"{BASELINE}+dead-taps", f"{BASELINE}+keep-pages"]
    order = [*there, *there[::-1], *there]
    assert turns == [[name, f"round {i // 3 + 1} of 3"] for i, name in enumerate(order)]
    assert [t.split(",")[0] for t in told if "verification" not in t] == [BASELINE, RESIDENT]
    measured = measured_of(ladder, BASELINE)
    # Later rounds are slower for both sides: only pairs of one round show what the remedy brings.
    assert measured["taps"].gain == pytest.approx(0.2)
    assert measured["taps"].gain_low == pytest.approx(0.2)
    assert measured["taps"].n == 3
    assert measured["taps"].step_ms_before == pytest.approx(1.5 / STEPS * 1000)
    assert measured["taps"].step_ms == pytest.approx(1.2 / STEPS * 1000)
    assert measured["slow"].gain == pytest.approx(-1.0)
    assert ladder.counsel.advice[BASELINE].verdict.endswith("Verified: 1 of 2 remedies that were run made it faster.")


def test_verifying_turns_are_short_checked_once_and_no_part_of_the_comparison(tmp_path, monkeypatch):
    findings = (a_finding("taps", f"{BASELINE}+dead-taps"),)
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: findings}))
    through(ladder)
    specs = [r.spec for r in ladder.verified]
    assert len(specs) == 6
    assert {(s.epochs, s.save_model, s.profile) for s in specs} == {(2, False, "none")}
    assert [(s.variant, s.repeat) for s in specs if s.check] == [(f"{BASELINE}+dead-taps", 0)]
    assert len(list((ladder.folder / "verify").rglob("record.json"))) == 6
    _, compared = load(ladder.folder)
    assert [r.spec.variant for r in compared] == [BASELINE, RESIDENT]
    assert {r.variant for r in ladder.comparison.rows} == {BASELINE, RESIDENT}
    assert ladder.finished == 8


def test_the_fastest_variant_is_verified_too_on_the_ladder_s_own_list(tmp_path, monkeypatch):
    findings = {BASELINE: (a_finding("words-only"),), RESIDENT: (a_finding("taps", f"{RESIDENT}+dead-taps"),)}
    ladder = make_ladder(tmp_path, monkeypatch, the_advice(findings))
    told = through(ladder)
    assert sum("verification" in t for t in told) == 6
    remedy = next(r.spec for r in ladder.verified if r.spec.variant == f"{RESIDENT}+dead-taps")
    assert {o.name for o in remedy.optimizations} == {"resident", "dead-taps"}
    assert measured_of(ladder, RESIDENT)["taps"].gain == pytest.approx(0.2)
    assert measured_of(ladder, BASELINE) == {"words-only": None}


def test_a_remedy_that_is_written_out_keeps_what_the_advised_variant_chose_by_timing(tmp_path, monkeypatch):
    finding = a_finding("taps", f"{BASELINE}+resident+dead-taps")
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({RESIDENT: (finding,)}))
    settled = OptimizationSpec(name="resident", options={"settled": "so"})
    through(ladder)
    ladder.variants[RESIDENT] = replace(ladder.variants[RESIDENT], optimizations=(settled,))
    chosen = Verification(ladder, {RESIDENT: Advice(findings=(finding,))}).groups[0].remedies[0].variant
    assert settled in chosen.optimizations
    assert {o.name for o in chosen.optimizations} == {"resident", "dead-taps"}


def test_two_findings_with_one_remedy_cost_its_turns_once_and_the_fourth_is_not_run(tmp_path, monkeypatch):
    remedies = ("dead-taps", "dead-taps", "keep-pages", "threads")
    findings = tuple(a_finding(f"f{i}", f"{BASELINE}+{name}") for i, name in enumerate(remedies))
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: findings}))
    told = through(ladder)
    assert sum("verification" in t for t in told) == 9
    measured = measured_of(ladder, BASELINE)
    assert measured["f0"] == measured["f1"]
    assert measured["f3"] is None
    assert len(advice_runs(ladder)) == 3


@pytest.mark.parametrize("status", ["failed", "wrong"])
def test_a_remedy_that_fails_is_an_error_that_counts_and_runs_no_more(tmp_path, monkeypatch, status):
    def run(spec):
        broken = any(o.name == "dead-taps" for o in spec.optimizations)
        return RunRecord(status=status, error="boom", spec=spec) if broken else a_run(spec)

    findings = (a_finding("taps", f"{BASELINE}+dead-taps"), a_finding("slow", f"{BASELINE}+keep-pages"))
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: findings}), run)
    told = through(ladder)
    assert sum("dead-taps" in t for t in told) == 1
    measured = measured_of(ladder, BASELINE)
    assert measured["taps"].error == f"{BASELINE}+dead-taps {status}: boom"
    assert measured["taps"].gain is None
    assert measured["slow"].n == 3
    assert len(advice_runs(ladder)) == 2
    assert ladder.exit_code() == 0


@pytest.mark.parametrize(
    ("variant", "said"),
    [("cpu-baseline+bf17", "bf17"), ("cuda-baseline", "cuda"), (BASELINE, "already"), ("cpu-what", "cpu-what")],
)
def test_a_remedy_that_can_not_be_run_here_says_why_and_costs_no_turn(tmp_path, monkeypatch, variant, said):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: (a_finding("f", variant),)}))
    told = through(ladder)
    assert not [t for t in told if "verification" in t]
    assert said in measured_of(ladder, BASELINE)["f"].error
    assert not advice_runs(ladder)


def test_an_interruption_keeps_what_was_measured(tmp_path, monkeypatch):
    ran = []

    def run(spec):
        ran.append(spec.variant)
        if len(ran) == 2 + 5:  # the second round's second process
            raise KeyboardInterrupt
        return a_run(spec)

    findings = (a_finding("taps", f"{BASELINE}+dead-taps"), a_finding("slow", f"{BASELINE}+keep-pages"))
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: findings}), run, report=True)
    with pytest.raises(KeyboardInterrupt):
        through(ladder)
    assert ladder.record.status == "interrupted"
    assert '<div class="measured">' in (ladder.folder / "comparison.html").read_text()
    kept = Advice.model_validate(json.loads((ladder.folder / "cpu-baseline-0" / "advice.json").read_text()))
    measured = {f.id: f.measured for f in kept.findings}
    # The first round of all three, and of the second the last remedy alone: nothing to pair it with.
    assert {name: (m.n, m.gain_low) for name, m in measured.items()} == {"taps": (1, None), "slow": (1, None)}
    assert measured["taps"].gain == pytest.approx(0.2)
    assert len(advice_runs(ladder)) == 2


def test_no_epoch_kept_is_no_gain(tmp_path, monkeypatch):
    def run(spec):
        record = a_run(spec)
        if not any(o.name == "dead-taps" for o in spec.optimizations):
            return record
        epochs = tuple(e.model_copy(update={"kept": False, "compilations": 1}) for e in record.epochs)
        return record.model_copy(update={"epochs": epochs})

    finding = a_finding("taps", f"{BASELINE}+dead-taps")
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: (finding,)}), run)
    through(ladder)
    assert "compiled anew" in measured_of(ladder, BASELINE)["taps"].error


def test_a_gain_within_the_noise_is_said_to_be_one():
    def measured(gain: float, low: float) -> Measured:
        return Measured(gain=gain, gain_low=low, gain_high=2 * gain - low, n=3)

    found = {"a": measured(0.3, 0.2), "b": measured(0.03, -0.3), "c": measured(-0.1, -0.2), "d": Measured(error="died")}
    advice = Advice(subject="x", verdict="Do a.", findings=tuple(a_finding(name) for name in found))
    said = "Do a. Verified: 2 of 3 remedies that were run made it faster, 1 of them by less than the noise."
    assert with_measured(advice, found).verdict == said


def test_a_gain_that_cost_quality_is_said_to_have():
    found = {"a": Measured(gain=0.7, n=3, quality_kept=False), "b": Measured(gain=-0.1, n=3, quality_kept=False)}
    advice = Advice(subject="x", verdict="Do a.", findings=tuple(a_finding(name) for name in found))
    said = "Do a. Verified: 1 of 2 remedies that were run made it faster, 1 of them with quality lost."
    assert with_measured(advice, found).verdict == said


_KEPT = Measured(gain=0.2, gain_low=0.1, gain_high=0.3, n=3, step_ms=80, step_ms_before=100, quality_kept=True)
_LOST = Measured(gain=0.7, n=3, quality_kept=False)
_SLOWER = Measured(gain=-0.1, n=3, quality_kept=True)
_FIRST_LOST = "Proposed first, but quality was lost: a is slow."


@pytest.mark.parametrize(
    ("found", "opening"),
    [
        (
            {"a": _LOST, "b": _KEPT},
            "Most worth doing: b is slow. Measured: 80.0 ms instead of 100 ms, 20 % less (+10 to +30 %), n = 3, "
            f"quality kept. {_FIRST_LOST} Verified: 2 of 2 remedies",
        ),
        ({"a": _LOST, "b": _SLOWER}, f"Nothing that was tried is worth doing. {_FIRST_LOST} Verified: 1 of 2"),
        ({"a": _LOST}, f"{most_worth(a_finding('b'))} {_FIRST_LOST} Verified: 1 of 1"),
        ({"a": _SLOWER}, f"{most_worth(a_finding('b'))} Proposed first, but not faster: a is slow. Verified: 0 of 1"),
        (
            {"a": Measured(error="boom"), "b": _SLOWER},
            "Nothing that was tried is worth doing. Proposed first, but not measured: a is slow. Verified: 0 of 1",
        ),
        ({"a": _KEPT, "b": _LOST}, f"{most_worth(a_finding('a'))} Verified: 2 of 2"),
        ({"b": _LOST}, f"{most_worth(a_finding('a'))} Verified: 1 of 1"),
    ],
)
def test_the_headline_opens_with_what_is_worth_doing_once_that_is_known(found, opening):
    findings = (a_finding("a"), a_finding("b"))
    advice = Advice(subject="x", verdict=most_worth(findings[0]), findings=findings)
    assert with_measured(advice, found).verdict.startswith(opening)


def test_a_headline_about_something_else_stays():
    assert with_measured(Advice(subject="x", verdict="Nothing."), {}).verdict == "Nothing."
    advice = Advice(subject="x", verdict="Little is left.", findings=(a_finding("a"),))
    assert with_measured(advice, {"a": _LOST}).verdict.startswith("Little is left. Verified: 1 of 1")
