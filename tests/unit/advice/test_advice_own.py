"""Advice on a training in a user's own file."""

from __future__ import annotations

from advice_records import probe, record, spec

from laptime.advice import advise, signals_of
from laptime.advice.remedy import remedy_of
from laptime.spec import OwnSpec


def test_the_remedies_of_a_users_own_workload_can_be_run():
    own = OwnSpec(
        attribute="workload",
        name="mine",
        batch_size=32,
        learning_rate=1e-3,
        quality="loss",
        refused={"workers": "its items live in one process"},
    )
    data = spec().data.model_copy(update={"kind": "own", "path": "/there/train.py", "own": own})
    given = record().model_copy(update={"spec": spec().model_copy(update={"workload": "mine", "data": data})})
    found = advise(given, probe=probe(bf16=1.4))
    (command,) = {f.command.split(" --")[0] for f in found.findings if f.command}
    assert command == "laptime run /there/train.py:workload"
    for signals in (signals_of(given), signals_of(given, probe=probe(bf16=1.4))):
        assert remedy_of("workers:count=1", signals).refusal == "its items live in one process"
