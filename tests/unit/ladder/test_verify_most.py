"""How much of the advice is verified: what is asked for, what that will take, and what needs no turn of its own."""

import pytest
from tests.unit.ladder.advised import a_finding, a_run, make_ladder, the_advice, through

from laptime.errors import UsageError
from laptime.ladder import remedies
from laptime.ladder.request import make_request
from laptime.ladder.verify import ROUNDS, Verification
from laptime.records import Advice
from laptime.spec import OptimizationSpec
from laptime.variants import Variant

BASELINE, RESIDENT, SLOW = "cpu-baseline", "cpu-resident", "cpu-keep-pages"
OPTIMIZATIONS = ("dead-taps", "keep-pages", "threads", "no-reads")


def with_a_middle_rung(tmp_path, monkeypatch, **options):
    """A ladder whose third variant is neither the baseline nor the fastest."""
    findings = {
        name: tuple(a_finding(o, f"{name}+{o}") for o in OPTIMIZATIONS if not name.endswith(o))
        for name in (BASELINE, RESIDENT, SLOW)
    }
    said = []
    ladder = make_ladder(tmp_path, monkeypatch, the_advice(findings), **options)
    ladder.say = said.append
    slow = Variant(SLOW, "cpu", (OptimizationSpec(name="keep-pages"),))
    ladder.plan = type(ladder.plan)(**{**vars(ladder.plan), "fixed": (*ladder.plan.fixed, slow)})
    return ladder, said


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, {BASELINE: 3, RESIDENT: 3}),
        ({"verify_advice": False, "verify_most": 1}, {BASELINE: 1, RESIDENT: 1, SLOW: 1}),
        ({"verify_most": "all"}, {BASELINE: 4, RESIDENT: 4, SLOW: 3}),
    ],
)
def test_as_many_remedies_run_as_were_asked_for(tmp_path, monkeypatch, options, counts):
    ladder, said = with_a_middle_rung(tmp_path, monkeypatch, **options)
    told = [t for t in through(ladder) if "verification" in t]
    measured = {
        name: sum(f.measured is not None for f in advice.findings) for name, advice in ladder.counsel.advice.items()
    }
    assert {name: n for name, n in measured.items() if n} == counts
    turns = ROUNDS * sum(n + 1 for n in counts.values())
    assert len(told) == turns
    (words,) = said
    what = ", ".join(f"{n} on {name}" for name, n in counts.items())
    assert words.startswith(f"Verifying what advice proposes ({what}): {turns} turns, about ")


def test_neither_option_runs_nothing(tmp_path, monkeypatch):
    ladder, said = with_a_middle_rung(tmp_path, monkeypatch, verify_advice=False)
    assert not [t for t in through(ladder) if "verification" in t]
    assert said == []


def test_where_there_is_nothing_to_run_its_advice_says_why(tmp_path, monkeypatch):
    ladder, said = with_a_middle_rung(tmp_path, monkeypatch)
    refused = a_finding("f", "cpu-what")
    ladder.counsel.rules = the_advice({BASELINE: (a_finding("words-only"),), RESIDENT: (refused,)})
    through(ladder)
    assert said[0] == f"Nothing to verify on {BASELINE}: Look at {BASELINE}."
    assert said[1].startswith(f"Nothing to verify on {RESIDENT}: it can't be run here: ")
    assert len(said) == 2


@pytest.mark.parametrize("value", [0, -1, "many", "", "1.5", True])
def test_nonsense_is_one_sentence(value):
    with pytest.raises(UsageError, match=r"--verify-most: must be all or a number from 1") as error:
        make_request(verify_most=value)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize(("value", "kept"), [("all", "all"), ("2", 2), (2, 2), (None, None)])
def test_a_number_may_be_text(value, kept):
    assert make_request(verify_most=value).verify_most == kept


def test_what_verification_takes_is_told_by_what_the_advised_variants_took(tmp_path, monkeypatch):
    def run(spec):
        record = a_run(spec)
        epochs = tuple(e.model_copy(update={"epoch_s": 10 * e.epoch_s, "evaluate_s": 2.0}) for e in record.epochs)
        return record.model_copy(update={"epochs": epochs, "startup_s": 10.0, "warmup_s": 1.0})

    findings = (a_finding("taps", f"{BASELINE}+dead-taps", klass="statistical"),)
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({}), run)
    through(ladder)
    found = Verification(ladder, {BASELINE: Advice(findings=findings)})
    # Three rounds of two processes of 10 + 1 + 2 x 12 seconds, and one training of 10 + 1 + 3 x 12.
    assert list(found.told()) == [
        f"Verifying what advice proposes (1 on {BASELINE}): 7 turns (whole trainings among them: up to 1), "
        f"about {(6 * 35 + 47) / 60:.1f} minutes."
    ]
    turns = []
    for turn in found.turns():
        turns.append(turn)
        ladder.run(turn, None)
    assert [(t.number - 2, t.total - 2) for t in turns] == [(n, 7) for n in range(1, 8)]


def test_on_a_gpu_one_training_runs_once_a_round_for_all_that_share_it(tmp_path, monkeypatch):
    """A GPU drifts little; on a CPU each remedy stands beside what it was advised on."""
    monkeypatch.setattr(remedies, "choose_device", lambda _: "cuda")
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({}))
    through(ladder)
    plain = ladder.variants[BASELINE]
    rung = Variant("cuda-no-reads", "cuda", (OptimizationSpec(name="no-reads"),))
    ladder.variants |= {"cuda-baseline": Variant("cuda-baseline", "cuda", plain.optimizations), rung.name: rung}
    ladder.runs += [
        r.model_copy(update={"spec": r.spec.model_copy(update={"variant": n})})
        for n in ("cuda-baseline", rung.name)
        for r in ladder.runs[:1]
    ]
    advice = {
        "cuda-baseline": Advice(findings=tuple(a_finding(n, f"cuda-baseline+{n}") for n in ("no-reads", "resident"))),
        rung.name: Advice(findings=(a_finding("resident", f"{rung.name}+resident"),)),
    }
    found = Verification(ladder, advice)
    assert "12 turns" in next(found.told())
    ran = []
    for turn in found.turns():
        ran.append(turn.variant)
        ladder.run(turn, type("Hooks", (), {"say": print})())
    # The rung advised on is the first one's remedy.
    assert sorted(set(ran)) == [
        "cuda-baseline",
        "cuda-baseline+no-reads",
        "cuda-baseline+resident",
        "cuda-no-reads+resident",
    ]
    assert len(ran) == 12
    measured = found.results()
    assert measured[rung.name]["resident"].gain == pytest.approx(0.5)
    assert measured["cuda-baseline"]["no-reads"].gain == pytest.approx(-1.0)
