"""What a run's record says."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median
from typing import Any

from laptime.advice.signals import Signals
from laptime.advice.sources.steps import runs_on_gpu, steps_of
from laptime.records import Machine, RunRecord
from laptime.records.breakdown import ProfileRecord, SetupRecord
from laptime.records.rates import middle
from laptime.spec import RunSpec

# What stays in memory whatever the batch is.
_FIXED_MEMORY = ("parameters", "gradients", "optimizer", "buffers")


def of_record(record: RunRecord) -> Signals:
    """The signals of a run."""
    spec, setup = record.spec, record.setup or SetupRecord()
    found = Signals(
        **steps_of(record),
        **_epoch(record),
        subject=spec.variant if spec else "",
        device=spec.device if spec else "cpu",
        load=record.machine.load_before,
        cores=record.machine.cores or None,
        ranks=record.ranks,
        **_batch(record, setup),
        precision=record.precision,
        passes=tuple((i.batch_size, i.pass_ms.median) for i in record.inference) or None,
        bf16_rates=bf16_rates(record.machine),
        ceilings_load=record.machine.ceilings.load,
    )
    found = replace(found, **_memory(record, setup), **_roof(record.profile), **_own(record))
    if record.setup is not None:
        found = replace(found, **_setup(record, record.setup))
    return _with_spec(found, spec) if spec is not None else found


def _with_spec(found: Signals, spec: RunSpec) -> Signals:
    test = spec.data.test_count
    options: list[str] = []
    for name, value in (("limit-train", spec.limit_train), ("limit-test", spec.limit_test)):
        options += [f"--{name}", str(value)] if value is not None else []
    if spec.data.asked not in ("", "auto"):
        options += ["--data", spec.data.asked]
    if spec.weights != "none":
        options += ["--weights", spec.weights]
    own = spec.data.own
    return replace(
        found,
        workload=f"{spec.data.path}:{own.attribute}" if own else spec.workload,
        refusals={**found.refusals, **own.refused} if own else found.refusals,
        variant=spec.variant,
        optimizations=spec.optimizations,
        options=tuple(options),
        test_samples=min(test, spec.limit_test or test) or None,
    )


def _epoch(record: RunRecord) -> dict[str, Any]:
    kept = record.kept
    return {
        "epoch_s": middle([e.epoch_s for e in kept]),
        "steps": int(median([e.steps for e in kept])) or None if kept else None,
        "evaluate_s": middle([e.evaluate_s for e in kept]),
        "checkpoint_s": _checkpoint_s(record),
        "peak_mib": middle([e.peak_memory_mib for e in kept]) or record.peak_memory_mib,
    }


def _checkpoint_s(record: RunRecord) -> float | None:
    """Of an epoch on average, since not every one has one; a loop of the user's own doesn't tell of its own."""
    if not record.kept or record.spec is None:
        return None
    if record.spec.checkpoint_share is not None:
        return 0.0  # a ladder writes them for itself, to go on after an interruption
    return mean(e.checkpoint_s or 0.0 for e in record.kept)


def _setup(record: RunRecord, setup: SetupRecord) -> dict[str, Any]:
    whole = record.parameters + record.removed_parameters if record.parameters else None
    dead = setup.dead_parameters
    return {
        "loader": setup.loader or None,
        "workers": setup.workers if setup.loader else None,
        "threads": setup.threads,
        "pinned": setup.pinned,
        "reads": setup.reads,
        "optimizer_kernel": setup.optimizer_kernel or None,
        "parameter_tensors": setup.parameter_tensors or None,
        "channels_last": setup.channels_last,
        "compiled": setup.compiled,
        "graphed": setup.graphed,
        "biased_before_norm": setup.biased_before_norm,
        "train_mib": setup.train_mib or None,
        "decoding_share": setup.decoding_share,
        "dead_share": dead / whole if dead is not None and whole else None,
    }


def _batch(record: RunRecord, setup: SetupRecord) -> dict[str, Any]:
    """The batch of a rank, and the one that `large-batch` counts: of all ranks, under weak scaling of each."""
    spec = record.spec
    own = setup.batch_size or (spec.batch_size if spec and record.ranks == 1 else None)
    weak = spec is not None and any(o.options.get("scaling") == "weak" for o in spec.optimizations)
    return {"batch_size": own, "parts": setup.passes, "whole_batch": own if own is None or weak else own * record.ranks}


def _memory(record: RunRecord, setup: SetupRecord) -> dict[str, Any]:
    """What a rank may take, a share of its host or a whole GPU, and what of it grows with the batch."""
    taken = record.profile.memory_mib if record.profile else {}
    grows = sum(mib for name, mib in taken.items() if name not in _FIXED_MEMORY)
    memory = setup.device_memory_mib
    if not runs_on_gpu(record):
        whole = memory or record.machine.memory_gib * 1024.0
        memory = whole / _ranks_of_a_host(record) or None
    return {"memory_mib": memory, "activations_mib": grows if "activations" in taken else None}


def _ranks_of_a_host(record: RunRecord) -> int:
    nodes = record.starts[-1].nodes if record.starts else 1
    return max(1, record.ranks // max(1, nodes))


def _roof(profile: ProfileRecord | None) -> dict[str, Any]:
    if profile is None:
        return {}
    return {
        "floor_share": profile.floor_share,
        "layouts": profile.layout,
        "updates": profile.updates,
        "trained": profile.passes or None,
        "shorter": profile.precision,
        "fewer_threads": profile.threads or None,
    }


def _own(record: RunRecord) -> dict[str, Any]:
    """Each rank's own time, which is of profiled steps, on the scale of the counted ones."""
    profile = record.profile
    if profile is None or not profile.ranks_own_ms or not profile.ratio or len(profile.ranks_own_ms) != record.ranks:
        return {}
    return {"rank_own_ms": tuple(ms / profile.ratio for ms in profile.ranks_own_ms)}


def bf16_rates(machine: Machine) -> float | None:
    """bf16 over fp32 in the micro-benchmarks of a machine."""
    short, plain = machine.ceilings.best("bf16"), machine.ceilings.best("fp32")
    return short / plain if short and plain else None
