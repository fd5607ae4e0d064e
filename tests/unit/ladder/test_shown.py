"""What a ladder's own rungs speak against is not advised."""

import pytest
from tests.unit.ladder.advised import a_run, forgetful, make_ladder, through

from laptime.ladder.advising import Rules
from laptime.records import Advice, RunRecord

BASELINE, RESIDENT = "cpu-baseline", "cpu-resident"


def refusals_of(tmp_path, monkeypatch, run, adds: str, **options) -> dict[str, dict[str, str]]:
    """What the rules are told that can't be had, by variant, where `cpu-resident` is the rung that adds something."""
    refusals = {}

    def advise(record, trace, history, probe):
        refusals[record.spec.variant] = probe.refusals
        return Advice()

    def climbed(spec):
        more = {"adds": adds, "on": BASELINE}
        rungs = (r.model_copy(update=more if r.variant == RESIDENT else {}) for r in ladder.record.rungs)
        ladder.record = ladder.record.model_copy(update={"rungs": tuple(rungs)})
        return run(spec)

    ladder = make_ladder(tmp_path, monkeypatch, Rules(advise, str), run=climbed, verify_advice=False, **options)
    through(ladder)
    return refusals


@pytest.mark.parametrize(("adds", "run", "withheld"), [
    ("large-batch", forgetful, ["large-batch"]),
    ("large-batch", a_run, []),
    ("resident", forgetful, []),  # exact: that it came out worse is the seeds' doing
])  # fmt: skip
def test_what_a_rung_has_shown_to_cost_quality_is_not_advised(tmp_path, monkeypatch, adds, run, withheld):
    refusals = refusals_of(tmp_path, monkeypatch, run, adds)
    assert {name: list(found) for name, found in refusals.items()} == {BASELINE: withheld, RESIDENT: withheld}
    for found in refusals.values():
        for reason in found.values():
            assert "cpu-resident has shown what large-batch costs here: accuracy worse, 50.0 % instead of 80" in reason


def longer(*factors: float):
    """Runs of which the rung takes so many times as long, by round."""

    def run(spec) -> RunRecord:
        by = factors[spec.repeat] * 2 if spec.variant == RESIDENT else 1  # twice: `a_run` has it take half
        found = a_run(spec)
        return found.model_copy(
            update={"epochs": tuple(e.model_copy(update={"epoch_s": by * e.epoch_s}) for e in found.epochs)}
        )

    return run


@pytest.mark.parametrize(("factors", "withheld"), [
    ((2.1, 2.0, 1.9), ["bf16"]),
    ((0.7, 2.0, 0.7), []),
    ((0.5, 2.0, 3.0), []),  # slower, but for what is known by chance
])  # fmt: skip
def test_what_a_rung_has_shown_to_be_slower_is_not_advised_on_what_it_was_added_to(
    tmp_path, monkeypatch, factors, withheld
):
    refusals = refusals_of(tmp_path, monkeypatch, longer(*factors), "bf16", repeats=3)
    assert list(refusals[BASELINE]) == withheld
    assert not refusals[RESIDENT]  # whatever else is on, it may be faster
    for reason in refusals[BASELINE].values():
        assert reason == "cpu-resident has shown what bf16 brings here: 0.50x (0.41–0.61) of cpu-baseline's speed"
