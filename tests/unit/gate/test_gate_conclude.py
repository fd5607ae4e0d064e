from __future__ import annotations

import math

import pytest
from gate_examples import WORKED, gate, pairs, process

from laptime.errors import DataError
from laptime.gate.conclude import conclude
from laptime.gate.records import EXIT_CODES, Trouble, read_gate
from laptime.gate.reports import to_json, to_markdown
from laptime.gate.words import conditions

SAME = (0.01, -0.01, 0.005, -0.004)


def kind(**changes):
    outcome = gate(**changes).outcome
    assert outcome is not None
    assert outcome.exit_code == EXIT_CODES[outcome.kind]
    return outcome.kind


def test_each_verdict_has_its_exit_code():
    assert kind() == "regressed"
    assert kind(log_ratios=[-d for d in WORKED]) == "improved"
    assert kind(log_ratios=SAME) == "not_regressed"
    assert kind(log_ratios=WORKED[:3]) == "inconclusive"
    assert kind(log_ratios=()) == "inconclusive"
    assert [code for k, code in EXIT_CODES.items() if k not in ("improved", "not_regressed")] == [1, 3, 4, 5, 6]
    assert {EXIT_CODES["improved"], EXIT_CODES["not_regressed"]} == {0}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"data": "other"}, "data"),
        ({"hardware": "another CPU"}, "machine"),
        ({"spec": "other"}, "spec"),
        ({"spec": "other", "trained": {"batch_size": "64"}}, "their spec's batch_size in pair 1 (None and 64)"),
        ({"samples": (1999, 1999)}, "samples"),
    ],
)
def test_what_differs_is_invalid_even_when_it_is_slower(changed, word):
    outcome = gate(pairs=pairs(WORKED, **changed)).outcome
    assert outcome is not None
    assert outcome.kind == "invalid"
    assert word in outcome.sentence


def test_trouble_decides_before_times_do():
    assert kind(trouble=Trouble(kind="error", reason="head crashed", log="boom")) == "error"
    assert kind(trouble=Trouble(kind="invalid", reason="base crashed")) == "invalid"
    # A budget that ran out is no trouble where the pairs had decided.
    assert kind(trouble=Trouble(kind="inconclusive", reason="The budget ended.")) == "regressed"
    assert kind(log_ratios=WORKED[:2], trouble=Trouble(kind="inconclusive", reason="The budget ended.")) == (
        "inconclusive"
    )


@pytest.mark.parametrize(
    ("epoch_s", "middle"), [((1.0, 4.0), 2.0), ((2.0, 100.0, 1.0, 8.0), 4.0), ((1.0, 9.0, 3.0), 3.0)]
)
def test_a_process_is_the_median_of_its_epochs_logarithms(epoch_s, middle):
    z = process("base", 0, 1.0).model_copy(update={"epoch_s": epoch_s}).z
    assert z == pytest.approx(math.log(middle))


def with_quality(metric: str, base: float, head: float):
    return tuple(
        pair.model_copy(
            update={
                side: getattr(pair, side).model_copy(update={"test_accuracy": None, metric: value + i / 1000})
                for side, value in (("base", base), ("head", head))
            }
        )
        for i, pair in enumerate(pairs(SAME))
    )


def test_lost_quality_is_parity_only_where_it_is_shown():
    assert kind(pairs=pairs(SAME, test_accuracy=0.45)) == "parity"
    assert kind(pairs=pairs(SAME, test_accuracy=0.495)) == "not_regressed"
    assert kind(pairs=pairs(WORKED, test_accuracy=0.1)) == "regressed"
    # A head that no longer measures base's quality is judged by what both still have.
    assert kind(pairs=with_quality("test_map50", 0.4, 0.3)) == "parity"
    assert kind(pairs=with_quality("test_map50", 0.4, 0.395)) == "not_regressed"
    assert kind(pairs=with_quality("test_loss", 2.0, 2.1)) == "parity"
    assert kind(pairs=with_quality("test_loss", 2.0, 1.5)) == "not_regressed"
    # Of a loss below 0, as a likelihood's, it is a percent of its size.
    assert kind(pairs=with_quality("test_loss", -3.0, -2.98)) == "not_regressed"
    assert kind(pairs=with_quality("test_loss", -3.0, -2.9)) == "parity"
    assert kind(pairs=with_quality("test_score", 0.4, 0.3)) == "parity"
    assert kind(pairs=with_quality("test_error", 20.0, 21.0)) == "parity"
    assert kind(pairs=with_quality("test_error", 20.0, 15.0)) == "not_regressed"
    scattered = [p.model_copy(update={"head": p.head.model_copy(update={"test_accuracy": a})})
                 for p, a in zip(pairs(SAME), (0.2, 0.6, 0.45, 0.6), strict=True)]  # fmt: skip
    assert kind(pairs=tuple(scattered)) == "not_regressed"


@pytest.mark.parametrize(
    ("of_pairs", "name"),
    [(pairs(SAME, test_accuracy=None), "test accuracy"), (with_quality("test_loss", 2.0, math.nan), "test loss")],
)
def test_a_head_whose_quality_is_gone_does_not_pass(of_pairs, name):
    outcome = gate(pairs=of_pairs).outcome
    assert outcome is not None
    assert outcome.kind == "parity"
    assert f"no {name} any more" in outcome.sentence


def test_a_base_without_quality_asks_for_none():
    assert kind(pairs=with_quality("test_loss", math.nan, 2.0)) == "not_regressed"
    assert kind(pairs=with_quality("test_loss", math.nan, math.nan)) == "not_regressed"


def test_a_regression_names_what_grew():
    grown = pairs(WORKED, parts_s={"data": 0.9, "forward": 0.6, "backward": 1.0})
    outcome = gate(pairs=grown).outcome
    assert outcome is not None
    assert outcome.cause is not None
    assert (outcome.cause.part, outcome.cause.share) == ("data", 1.0)
    assert outcome.cause.head_s == pytest.approx(0.9)
    assert gate(log_ratios=SAME).outcome.cause is None


def test_checks_beside_the_epoch():
    heavy = gate(pairs=pairs(SAME, peak_memory_mib=960.0, startup_s=4.0)).outcome
    assert heavy is not None
    found = {c.name: c for c in heavy.checks}
    assert found["peak memory"].ok is False
    assert found["time to the first step"].ok is False
    assert found["waiting for data"].base == pytest.approx(20)
    assert "compilation" not in found
    light = {c.name: c for c in gate(log_ratios=SAME).outcome.checks}
    assert light["peak memory"].ok
    assert light["time to the first step"].ok


def test_counts_must_not_grow():
    pairs = gate(log_ratios=SAME).pairs
    more = {"recompiles": 2, "syncs_per_step": 1}
    sides = [(p.base.model_copy(update={**more, "syncs_per_step": 3}), p.head.model_copy(update=more)) for p in pairs]
    changed = tuple(
        p.model_copy(update={"base": base, "head": head}) for p, (base, head) in zip(pairs, sides, strict=True)
    )
    record = gate(log_ratios=SAME).model_copy(update={"pairs": changed})
    found = {c.name: c for c in conclude(record).checks}
    assert (found["recompilations"].ok, found["waits for the GPU in a step"].ok) == (True, True)
    turned = tuple(p.model_copy(update={"base": p.head, "head": p.base}) for p in record.pairs)
    found = {c.name: c for c in conclude(record.model_copy(update={"pairs": turned})).checks}
    assert (found["recompilations"].ok, found["waits for the GPU in a step"].ok) == (True, False)
    assert "recompilations" not in {c.name for c in gate(log_ratios=SAME).outcome.checks}


def test_pairs_that_were_repeated_do_not_count():
    wild = pairs((2.0, *SAME))
    flagged = wild[0].model_copy(update={"flags": ("swap",), "counted": False})
    record = gate(pairs=(flagged, *wild[1:]))
    assert record.outcome.kind == "not_regressed"
    assert record.outcome.decision.pairs == 4
    assert "5 pairs, 1 flagged as disturbed, 1 repeated and not counted;" in conditions(record)
    assert "| 1 | base | 0 |" in to_markdown(record)
    assert "swap; repeated, not counted |" in to_markdown(record)


@pytest.mark.parametrize("log_ratios", [WORKED, SAME, WORKED[:3], (0.3, -0.3) * 12])
def test_a_written_gate_says_the_same_again(tmp_path, log_ratios):
    record = gate(log_ratios)
    (tmp_path / "gate.json").write_text(to_json(record))
    again = read_gate(tmp_path / "gate.json")
    assert conclude(again) == record.outcome
    assert again == record


def test_another_schema_is_refused(tmp_path):
    (tmp_path / "gate.json").write_text(to_json(gate()).replace("laptime.gate/1", "laptime.gate/9"))
    with pytest.raises(DataError, match=r"laptime\.gate/9"):
        read_gate(tmp_path / "gate.json")
