"""The params of runs in MLflow: what was asked for, which nothing that a run finds out changes."""

from __future__ import annotations

from laptime.catalogue import batch_of, of_stage, options_of
from laptime.data.choices import called
from laptime.records import LadderRecord, Rung, RunRecord
from laptime.spec import DataSpec, RunSpec


def ladder_params(ladder: LadderRecord, settled: bool = True) -> dict[str, object]:
    """Of a ladder's run; without its counts of epochs and rounds where they are not settled yet."""
    return {
        "workload": ladder.workload,
        "preset": ladder.preset,
        "device": ladder.device,
        "epochs": ladder.epochs if settled else None,
        "repeats": ladder.repeats if settled else None,
        "limit_train": ladder.limit_train,
        "limit_test": ladder.limit_test,
        "seed": ladder.seed,
        "budget_s": (ladder.request or {}).get("budget"),
        **_data_params(ladder.data),
    }


def variant_params(ladder: LadderRecord, rung: Rung, record: RunRecord) -> dict[str, object]:
    """Of a variant's run: all of its spec, and how it was built."""
    params: dict[str, object] = {
        "variant": rung.variant,
        "optimizations": "+".join(o.text() for o in rung.optimizations),
        "classes": ",".join(rung.classes),
        "precision": record.precision if record.epochs else None,  # params stay, and it may be tried again
        "repeats": ladder.repeats,
        "on": rung.on,
        "adds": rung.adds,
    }
    if record.spec is None:
        return params
    spec = record.spec
    apart = {"schema_", "data", "optimizations", "variant", "repeat", "ceilings", "checkpoints", "checkpoint_share"}
    fields = spec.model_dump(mode="json", exclude=apart)
    return {**fields, **params, "batch_size": _batch_size(spec), **_data_params(spec.data)}


def _batch_size(spec: RunSpec) -> int:
    """The batch of all ranks that was trained with: the spec holds the baseline's, of each rank under weak scaling."""
    fixed = next((options_of(o)["batch"] for o in spec.optimizations if o.name == "fixed-shapes"), 0)
    batch = int(fixed) or batch_of(spec.optimizations, spec.device, spec.batch_size) or spec.batch_size
    weak = any(options_of(o).get("scaling") == "weak" for o in of_stage(spec.optimizations, "parallel"))
    samples = (spec.limit_train, spec.data.train_count)
    return min((batch * (spec.ranks if weak else 1), *(n for n in samples if n)))


def _data_params(data: DataSpec) -> dict[str, object]:
    return {
        "data": data.kind,
        "data_called": called(data),
        "data_digest": data.digest[:16],
        "train_count": data.train_count,
        "test_count": data.test_count,
    }
