"""A ladder of named variants whose processes take given times, and advice made by hand."""

from dataclasses import replace

from tests.unit.conftest import make_data_spec, make_ladder_record
from tests.unit.ladder.turning import turned

from laptime.catalogue import find_preset, find_workload
from laptime.ladder import run as ladder_module
from laptime.ladder.advising import Rules
from laptime.ladder.plan import make_plan
from laptime.ladder.request import LadderRequest
from laptime.ladder.run import Ladder
from laptime.places import Places
from laptime.records import Advice, EpochRecord, Finding, ProbeRecord, RunRecord, write_json

STEPS = 10
# What each optimization multiplies an epoch's seconds by; those not named lose.
WORTH = {"resident": 0.5, "dead-taps": 0.8}


def a_finding(name: str, variant: str = "", gain: tuple[float, float] = (0.1, 0.3), **more) -> Finding:
    expected = (100 * (1 - gain[1]), 100 * (1 - gain[0]))
    fields = {"klass": "exact", "confidence": 0.5, "command": f"laptime run cifar --variant {variant}", **more}
    return Finding(
        id=name,
        what=f"{name} is slow.",
        variant=variant,
        step_ms_now=100,
        step_ms_expected=expected,
        gain=gain,
        **fields,
    )


def the_advice(findings: dict[str, tuple[Finding, ...]]) -> Rules:
    """Rules that say for each variant what is given here."""

    def advise(record, trace, history, probe):
        name = record.spec.variant
        return Advice(subject=name, verdict=f"Look at {name}.", findings=findings.get(name, ()))

    return Rules(advise, lambda advice: "\n".join([advice.verdict, *(f.what for f in advice.findings)]))


def seconds_of(spec) -> float:
    """Each round is slower than the one before it, for all alike."""
    seconds = 1.0 + 0.5 * spec.repeat
    for optimization in spec.optimizations:
        seconds *= WORTH.get(optimization.name, 2.0)
    return seconds


def a_run(spec) -> RunRecord:
    epochs = tuple(
        EpochRecord(index=i, epoch_s=seconds_of(spec), samples=100, steps=STEPS, test_accuracy=0.8)
        for i in range(spec.epochs)
    )
    return RunRecord(status="done", spec=spec, epochs=epochs)


def forgetful(spec) -> RunRecord:
    """A run that learns less, but for the baseline."""
    run = a_run(spec)
    epochs = tuple(epoch.model_copy(update={"test_accuracy": 0.5}) for epoch in run.epochs)
    return run if spec.variant == "cpu-baseline" else run.model_copy(update={"epochs": epochs})


def make_ladder(tmp_path, monkeypatch, rules: Rules | None, run=a_run, report=False, **options) -> Ladder:
    """A ladder of `cpu-baseline` and `cpu-resident` whose processes leave what `run(spec)` returns.

    Its report, whose plots take most of a second, is drawn only where a test looks at it.
    """

    def launch(_launcher, spec, folder, _hooks):
        record = run(spec)
        write_json(folder / "record.json", record)
        return record

    monkeypatch.setattr(ladder_module, "launch", launch)
    if not report:
        monkeypatch.setattr(ladder_module, "write_comparison", lambda *_: {})
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    request = LadderRequest(**{"preset": "full", "epochs": 3, "repeats": 1, "verify_advice": True, **options})
    plan = make_plan("cpu", find_preset(find_workload("cifar"), "full"), ["cpu-resident"], ProbeRecord())
    record = make_ladder_record(data=make_data_spec(train=1000, test=10_000), epochs=3, quality_floor=0.6)
    # The plan's cpu-resident stands for all rungs before it as well; here it is the one thing more.
    resident = next(v for v in plan.fixed if v.name == "cpu-resident")
    only = tuple(o for o in resident.optimizations if o.name == "resident")
    fixed = (plan.fixed[0], type(resident)(resident.name, resident.device, only))
    ladder = Ladder(request, record, replace(plan, fixed=fixed, left_out=()), Places(tmp_path / "home"))
    ladder.folder = tmp_path / "ladder"
    ladder.counsel.rules = rules
    ladder.start()
    return ladder


def through(ladder: Ladder) -> list[str]:
    """Runs a ladder to its end, as the command line does; what ran, in words."""
    try:
        told = turned(ladder)
        ladder.compare()
        ladder.close("done")
    finally:
        ladder.close("interrupted")
    return told
