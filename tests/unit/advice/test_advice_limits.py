"""What is said once for all findings: a machine too noisy, too busy, or ceilings that nobody can judge by."""

from __future__ import annotations

import pytest
from advice_examples import CASES, cpu
from advice_records import record

from laptime.advice import signals_of, to_markdown, to_text
from laptime.advice.judge import ask, judge
from laptime.advice.outcome import Abstain, Limit, MissingSignalError
from laptime.advice.rules import RULES
from laptime.advice.rules.batch import batch_size
from laptime.advice.rules.limits import near_the_roof
from laptime.compare.advising import says_noise, withheld
from laptime.records import Ceilings, PassRecord


def of(signals):
    return judge(ask(RULES, signals), signals, {})


NOISY = of(cpu(noise=0.17, optimizer_ms=30.0, wait_ms=20.0, read_ms=10.0))


@pytest.mark.parametrize("write", [to_text, to_markdown])
def test_the_reason_is_said_once(write):
    assert sum("too noisy" in held.reason for held in NOISY.withheld) > 1
    lines = [line for line in write(NOISY).splitlines() if "too noisy for numbers" in line]
    assert len(lines) == 1
    assert "optimizer" in lines[0]
    assert "reads" in lines[0]


@pytest.mark.parametrize(
    ("noise", "told"), [(0.17, "17 %"), (0.1004, "10.1 % (advice needs 10 % or"), (0.104, "10.4 % (")]
)
def test_a_noise_above_the_limit_is_told_as_that(noise, told):
    assert f"known to within {told}" in of(cpu(noise=noise)).verdict


def test_a_load_is_not_helped_by_more_epochs():
    advice = of(cpu(noise=0.02, load=9.0))
    assert "when nothing else runs here" in advice.verdict
    assert "--epochs" not in advice.verdict


@pytest.mark.parametrize("advice", [NOISY, of(cpu(noise=0.17, load=9.0))])
def test_the_headline_says_how_noisy_and_what_would_help(advice):
    assert "17 %" in advice.verdict
    assert "quieter machine" in advice.verdict
    assert "--epochs" in advice.verdict
    assert "--repeats" in advice.verdict


def test_the_report_says_it_once():
    assert [reason for _, reason in withheld(NOISY)].count("the machine was too noisy for numbers") == 1
    assert says_noise(NOISY)
    assert not says_noise(of(cpu()))


def test_ceilings_of_a_busy_machine_tell_nothing():
    near = {"floor_share": 0.85, "wait_ms": 1.0}
    assert isinstance(near_the_roof(cpu(**near)), Limit)
    assert isinstance(near_the_roof(cpu(**near, ceilings_load=2.4)), Limit)
    busy = near_the_roof(cpu(**near, ceilings_load=2.6))
    assert isinstance(busy, Abstain)
    assert "load 2.6 on 2 cores" in busy.reason
    told = record()
    machine = told.machine.model_copy(update={"ceilings": Ceilings(load=3.5)})
    assert signals_of(told.model_copy(update={"machine": machine})).ceilings_load == 3.5


def test_one_batch_size_draws_no_line():
    (shared, *_), _ = CASES["batch-size"]
    one = (PassRecord(batch_size=32, pass_ms=60.0),)
    for passes in ((32, 30.0),), ((32, 30.0), (32, 31.0)):
        with pytest.raises(MissingSignalError, match="two batch sizes"):
            batch_size(cpu(**vars(shared) | {"passes": passes, "trained": one}))
    both = batch_size(cpu(**vars(shared) | {"trained": one}))
    assert both == batch_size(cpu(**vars(shared) | {"trained": None}))
    of(cpu(passes=((32, 30.0),), trained=(*one, *one)))
