"""A remedy that is really trained beside the baseline, through a ladder's own processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laptime.ladder import make_request, open_ladder, prepare_data
from laptime.ladder.advising import Rules
from laptime.launchers.base import Hooks
from laptime.places import Places
from laptime.records import Advice, Finding


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # MLflow's store in this process
@pytest.mark.long
def test_a_ladder_verifies_its_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MALLOC_PERTURB_", "1")
    finding = Finding(
        id="resident",
        what="Images come one by one.",
        step_ms_now=100,
        step_ms_expected=(50, 90),
        gain=(0.1, 0.5),
        klass="exact",
        variant="cpu-baseline+resident",
    )

    def advise(record, trace, history, probe) -> Advice:
        mine = record.spec.variant == "cpu-baseline"
        return Advice(subject=record.spec.variant, findings=(finding,) if mine else ())

    request = make_request(
        **{"data": "synthetic", "limit_train": 64, "limit_test": 32, "epochs": 1, "warmup_epochs": 1, "repeats": 1},
        variants="cpu-resident",
        device="cpu",
        verify_advice=True,
        out=str(tmp_path / "ladder"),
    )
    places, said = Places(tmp_path / "home"), list[str]()
    ladder = open_ladder(request, prepare_data(request, places, said.append), places, said.append)
    assert sum("NOTICE: MALLOC_PERTURB_=1 is set in the environment" in text for text in said) == 1
    ladder.counsel.rules = Rules(advise, lambda advice: advice.verdict)
    turns = []
    try:
        for turn in ladder.turns():
            turns.append(str(turn))
            ladder.run(turn, Hooks())
        ladder.compare()
        ladder.close("done")
    finally:
        ladder.close("interrupted")
    # One turn a round where both sides train by turns, two where this machine has no room for both.
    rounds = [turn.partition("verification, ")[2] for turn in turns if "verification" in turn]
    assert set(rounds) == {f"round {number} of 3" for number in (1, 2, 3)}
    told = Advice.model_validate(json.loads((tmp_path / "ladder" / "advice.json").read_text()))
    measured = told.findings[0].measured
    assert measured is not None
    assert not measured.error
    assert measured.n == 3
    assert measured.gain_low is not None
    assert measured.gain_high is not None
    assert measured.gain_low < measured.gain_high
    assert [r.status for r in ladder.verified] == ["done"] * 6
    assert "advice_gain_measured" in (places.journal / f"{ladder.record.id}.jsonl").read_text()
