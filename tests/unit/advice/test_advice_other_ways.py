"""Where the first remedy can't be had, or more than one thing helps: what is proposed instead, or beside it."""

from __future__ import annotations

import pytest
from advice_examples import cpu, gpu

from laptime.advice.judge import ask, judge
from laptime.advice.outcome import Abstain, Proposal
from laptime.advice.rules import RULES
from laptime.advice.rules.epoch import worker_start
from laptime.advice.rules.launches import launch_bound
from laptime.advice.signals import Signals
from laptime.records.trace import KernelStats
from laptime.spec import OptimizationSpec

_IDLE = KernelStats(calls=900, median_us=4.0, short=0.9, busy_ms=5.0, idle_ms=5.0, unexplained_idle_ms=4.0)
# Of a forward pass at batch 32 nine tenths do not depend on the batch.
_FIXED = ((32, 3.0), (512, 7.5))


def bound(**changes: object) -> Signals:
    return gpu(kernels=_IDLE, passes=_FIXED, peak_mib=1000.0, **changes)


def offered(s: Signals) -> Proposal:
    found = launch_bound(s)
    assert isinstance(found, Proposal)
    return found


def test_a_graph_of_the_whole_step_comes_first() -> None:
    assert offered(bound()).remedy == offered(bound(optimizations=None)).remedy == "graph"


@pytest.mark.parametrize(
    "s",
    [
        bound(refusals={"graph": "the loss reads a value in each step"}),
        bound(optimizations=(OptimizationSpec(name="ddp"),)),
    ],
    ids=["refused", "in the place of another"],
)
def test_where_it_is_refused_the_compiler_launches_what_it_can(s: Signals) -> None:
    whole, found = offered(bound()), offered(s)
    assert (found.remedy, found.klass) == ("compile-graphed", "numeric")
    assert found.gain_ms == pytest.approx((0.6 * whole.gain_ms[0], 0.9 * whole.gain_ms[1]))
    assert found.confidence < whole.confidence
    assert any("no graph of the whole step" in text for text in found.evidence)


def test_where_neither_can_be_had_more_samples_share_the_launches() -> None:
    refusals = {"graph": "it reads values", "compile-graphed": "there is no compiler"}
    found = offered(bound(refusals=refusals))
    assert found.remedy.startswith("large-batch:size=")
    assert {"no graph of the whole step: it reads values", "nor by the compiler: there is no compiler"} <= {
        *found.evidence
    }
    advice = judge(ask(RULES, bound(refusals=refusals)), bound(refusals=refusals), {})
    same = [f for f in advice.findings if "large-batch" in f.variant]
    assert [f.id for f in same] == ["launch-bound"]
    assert any(text.startswith("batch-size: ") for text in same[0].evidence)


def test_where_nothing_is_left_every_reason_is_said() -> None:
    refusals = {"graph": "it reads values", "compile-graphed": "there is no compiler"}
    for s in (bound(refusals=refusals, memory_mib=1100.0), gpu(kernels=_IDLE, passes=None, refusals=refusals)):
        found = launch_bound(s)
        assert isinstance(found, Abstain)
        assert all(reason in found.reason for reason in refusals.values())


def starting(**changes: object) -> Proposal:
    found = worker_start(cpu(loader="theirs", workers=8, worker_start_s=0.6, wait_ms=0.1, **changes))
    assert isinstance(found, Proposal)
    return found


def test_how_many_workers_would_do_follows_from_the_first_batch() -> None:
    # One worker takes 250 ms for a batch, a step 100 ms.
    found = starting(first_batch_s=0.85)
    assert "and 3 instead of 8 would do" in found.what
    assert found.code == "DataLoader(..., num_workers=3, persistent_workers=True)"
    assert any("250 ms" in text for text in found.evidence)
    assert "1 instead of 8" in starting(first_batch_s=0.6).what


@pytest.mark.parametrize(
    "changes", [{"first_batch_s": 1.35}, {"first_batch_s": None}], ids=["all are needed", "unknown"]
)
def test_where_fewer_would_not_do_none_is_said_to(changes: dict[str, object]) -> None:
    found = starting(**changes)
    assert found.what == "Each epoch starts its 8 workers anew: keep them."
    assert found.code == "DataLoader(..., persistent_workers=True)"


def test_where_steps_wait_no_worker_is_taken_away() -> None:
    found = worker_start(cpu(loader="theirs", workers=8, worker_start_s=0.6, wait_ms=2.0, first_batch_s=0.85))
    assert isinstance(found, Proposal)
    assert "would do" not in found.what
