from __future__ import annotations

from pathlib import Path

import pytest
from tracking_samples import MemoryStore, a_ladder, a_record, write_run

from laptime.records import (
    Breakdown,
    InferenceRecord,
    LadderRecord,
    Machine,
    ProfileRecord,
    Quartiles,
    Rung,
    RunRecord,
    write_json,
)
from laptime.tracking.base import RunStart
from laptime.tracking.publish import (
    ladder_finished,
    ladder_key,
    ladder_started,
    run_folder,
    variant_compared,
    variant_key,
    variant_recorded,
)
from laptime.tracking.tensorboard import write_events

# tensorboard 2.21 imports what newer libraries deprecate
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")]

RUNG = Rung(variant="cpu-a", on="cpu-baseline", adds="large-batch")


def publish(
    tmp_path: Path, records: list[RunRecord], ladder: LadderRecord | None = None
) -> tuple[MemoryStore, LadderRecord]:
    store, ladder = MemoryStore(), ladder or a_ladder()
    for record in records:
        write_run(tmp_path, record)
    ladder_started(store, ladder)
    variant_recorded(store, ladder, RUNG, records, tmp_path)
    return store, ladder


def start_of(store: MemoryStore, key: str) -> RunStart:
    start = store.runs[f"id-{key}"]["start"]
    assert isinstance(start, RunStart)
    return start


def metrics_of(store: MemoryStore, key: str) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for name, value, step, _ in store.runs[f"id-{key}"]["metrics"]:  # type: ignore[attr-defined]
        found.setdefault(name, {})[step] = value
    return found


def test_quality_comes_from_the_first_repeat_and_times_from_all_behind_one_another(tmp_path: Path) -> None:
    store, ladder = publish(tmp_path, [a_record("cpu-a", n) for n in range(3)])
    metrics = metrics_of(store, variant_key(ladder, "cpu-a"))
    assert sorted(metrics["test_accuracy"]) == [0, 1]
    assert metrics["epoch_s"] == {0: "2.0", 1: "3.0", 2: "3.0", 3: "4.0", 4: "4.0", 5: "5.0"}
    assert metrics["warmup_s"] == {0: "2.0"}
    assert metrics["epoch_s_median"] == {0: "3.5"}


def test_steps_and_their_parts_are_curves_and_inference_is_a_figure(tmp_path: Path) -> None:
    def some(ms: float) -> Quartiles:
        return Quartiles(low=ms - 1, median=ms, high=ms + 1)

    def with_breakdown(repeat: int, *parts: str) -> RunRecord:
        record = a_record("cpu-a", repeat)
        of = Breakdown(
            steps=3,
            step_ms=some(40 + repeat),
            parts_ms={part: some(10 * n) for n, part in enumerate(parts, start=1)},
            first_batch_s=0.5,
        )
        epochs = tuple(e.model_copy(update={"breakdown": of, "skew_s": 0.02}) for e in record.epochs)
        passes = (InferenceRecord(batch_size=32, pass_ms=some(8 + 2 * repeat), samples_per_s=4000 - repeat),)
        return record.model_copy(update={"epochs": epochs, "inference": passes})

    parts = ("data", "copy", "forward", "backward", "optimizer", "read", "rest")
    store, ladder = publish(tmp_path, [with_breakdown(n, *parts) for n in range(2)])
    metrics = metrics_of(store, variant_key(ladder, "cpu-a"))
    assert metrics["step_ms_median"] == {0: "40.0", 1: "40.0", 2: "41.0", 3: "41.0"}
    assert metrics["step_ms_p25"][0] == "39.0"
    assert metrics["step_ms_p75"][0] == "41.0"
    named = ("data_wait_ms", "copy_ms", "forward_ms", "backward_ms", "optimizer_ms", "read_ms", "rest_ms")
    assert [metrics[name][3] for name in named] == [repr(10.0 * n) for n in range(1, 8)]
    assert (metrics["backward_ms_p25"][0], metrics["backward_ms_p75"][0]) == ("39.0", "41.0")
    assert metrics["first_batch_s"][0] == "0.5"
    assert metrics["skew_s"][0] == "0.02"
    assert metrics["inference_ms_b32"] == {0: "9.0"}
    assert metrics["inference_samples_per_s_b32"] == {0: "3999.5"}
    assert not {"worker_start_s", "gc_s", "graph_ms"} & metrics.keys()
    assert not [name for name in metrics if name.startswith("device_") or "_rank" in name]


def test_a_graph_and_workers_have_metrics_of_their_own_and_a_record_without_breakdown_its_median(
    tmp_path: Path,
) -> None:
    record = a_record("cpu-a")
    third = Quartiles(low=1, median=2, high=3)
    of = Breakdown(steps=1, step_ms=third, parts_ms={"step": third}, worker_start_s=0.25, gc_s=0.0)
    epochs = (
        record.epochs[0].model_copy(update={"breakdown": of, "step_ms_median": 2.5}),
        record.epochs[1].model_copy(update={"step_ms_median": 2.5}),
    )
    store, ladder = publish(tmp_path, [record.model_copy(update={"epochs": epochs})])
    metrics = metrics_of(store, variant_key(ladder, "cpu-a"))
    assert metrics["step_ms_median"] == {0: "2.0", 1: "2.5"}
    assert metrics["graph_ms"] == {0: "2.0"}
    assert metrics["worker_start_s"] == {0: "0.25"}
    assert metrics["gc_s"] == {0: "0.0"}


def test_the_device_s_own_parts_the_ranks_and_checkpoints_are_curves(tmp_path: Path) -> None:
    def took(ms: float) -> Breakdown:
        host, device = Quartiles(low=1, median=2, high=3), Quartiles(low=ms, median=ms, high=ms)
        return Breakdown(steps=2, step_ms=device, parts_ms={"data": host}, device_ms={"forward": device})

    record = a_record("cpu-a")
    of = {"breakdown": took(7), "ranks_breakdown": (took(8), took(9)), "ranks_s": (1.5, 1.25, 1.75)}
    first = record.epochs[0].model_copy(update=of)
    second = record.epochs[1].model_copy(update={**of, "checkpoint_s": 0.5})
    store, ladder = publish(tmp_path, [record.model_copy(update={"epochs": (first, second)})])
    metrics = metrics_of(store, variant_key(ladder, "cpu-a"))
    assert metrics["device_forward_ms"] == {0: "7.0", 1: "7.0"}
    for rank, (step, epoch) in enumerate([("7.0", "1.5"), ("8.0", "1.25"), ("9.0", "1.75")]):
        assert metrics[f"step_ms_rank{rank}"][0] == step
        assert metrics[f"data_wait_ms_rank{rank}"][1] == "2.0"
        assert metrics[f"epoch_s_rank{rank}"][0] == epoch
    assert metrics["checkpoint_s"] == {1: "0.5"}


def test_names_are_those_of_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPTIME_IMAGE", "laptime:1")
    store, ladder = publish(tmp_path, [a_record("cpu-a")])
    child = start_of(store, variant_key(ladder, "cpu-a"))
    assert child.experiment == "cifar"
    assert child.parent == ladder_key(ladder)
    assert {
        "laptime.kind": "variant",
        "laptime.workload": "cifar",
        "laptime.variant": "cpu-a",
        "laptime.machine": "m1",
        "laptime.variables": "OMP_PROC_BIND=close OMP_WAIT_POLICY=passive",
        "laptime.commit": "abc123",
        "laptime.image": "laptime:1",
        "laptime.data": "synthetic " + "d" * 16,
        "laptime.data_notice": "generated images",
    }.items() <= child.tags.items()
    assert {"laptime.spec", "laptime.host", "laptime.pid", "laptime.started"} <= child.tags.keys()
    assert {
        "variant": "cpu-a",
        "batch_size": "512",
        "precision": "fp32",
        "seed": "0",
        "epochs": "2",
    }.items() <= (child.params.items())
    assert start_of(store, ladder_key(ladder)).tags["laptime.kind"] == "ladder"


def test_the_image_of_a_pod_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPTIME_IMAGE", "laptime:1")
    record = a_record("cpu-a")
    in_pod = record.model_copy(update={"machine": record.machine.model_copy(update={"image": "laptime:pod"})})
    store, ladder = publish(tmp_path, [in_pod])
    assert start_of(store, variant_key(ladder, "cpu-a")).tags["laptime.image"] == "laptime:pod"
    assert start_of(store, ladder_key(ladder)).tags["laptime.image"] == "laptime:1"


def test_files_of_the_first_repeat_have_the_contract_s_names_and_later_ones_stand_apart(
    tmp_path: Path,
) -> None:
    store, ladder = publish(tmp_path, [a_record("cpu-a", n) for n in range(2)])
    files = store.runs[f"id-{variant_key(ladder, 'cpu-a')}"]["files"]
    names = {"spec.json", "record.json", "machine.json", "log.txt", "samples.png", "model_summary.txt"}
    assert files == (
        names
        | {"tensorboard/tensorboard"}
        | {f"repeats/1/{name}" for name in names}
        | {"repeats/1/tensorboard/tensorboard"}
    )


def test_the_model_of_the_first_process_that_left_one_is_logged(tmp_path: Path) -> None:
    record = a_record("cpu-a")
    (write_run(tmp_path, record) / "model.pt").write_bytes(b"x")
    store, ladder = publish(tmp_path, [record])
    assert store.models == [variant_key(ladder, "cpu-a")]


@pytest.mark.parametrize(
    ("statuses", "ending", "expected"),
    [
        (["done", "done"], "done", "FINISHED"),
        (["done", "failed"], "done", "FAILED"),
        (["wrong"], "done", "FAILED"),
        (["failed"], "interrupted", "KILLED"),
        (["done"], "interrupted", "FINISHED"),
    ],
)
def test_a_variant_s_status(tmp_path: Path, statuses: list[str], ending: str, expected: str) -> None:
    records = [a_record("cpu-a", n, status=status) for n, status in enumerate(statuses)]
    ladder = a_ladder().model_copy(update={"status": ending})
    store, _ = publish(tmp_path, records, ladder)
    run = store.runs[f"id-{variant_key(ladder, 'cpu-a')}"]
    assert run["status"] == expected


def test_a_process_that_failed_before_its_first_epoch_is_published_too(tmp_path: Path) -> None:
    store, ladder = publish(tmp_path, [a_record("cpu-a", epochs=1, status="failed").model_copy(update={"epochs": ()})])
    tags = start_of(store, variant_key(ladder, "cpu-a")).tags
    assert tags["laptime.error"] == "it broke"
    assert tags["laptime.status"] == "0 of 1 done"
    assert metrics_of(store, variant_key(ladder, "cpu-a")) == {}


def test_what_a_process_that_was_tried_again_left_is_replaced(tmp_path: Path) -> None:
    cut = a_record("cpu-a", epochs=1, status="failed").model_copy(update={"machine": Machine(), "epochs": ()})
    folder = write_run(tmp_path, cut)
    store, ladder = publish(tmp_path, [cut])
    assert not (folder / "machine.json").exists()
    assert "precision" not in start_of(store, variant_key(ladder, "cpu-a")).params
    write_json(folder / "machine.json", Machine())  # as earlier versions did
    store, ladder = publish(tmp_path, [a_record("cpu-a")])
    assert '"m1"' in (folder / "machine.json").read_text()
    assert start_of(store, variant_key(ladder, "cpu-a")).tags["laptime.error"] == ""


def test_the_parent_ends_with_figures_note_and_files(tmp_path: Path) -> None:
    store, ladder = publish(tmp_path, [a_record("cpu-a")])
    write_json(tmp_path / "ladder.json", ladder)
    variant_compared(store, ladder, "cpu-a", {"speedup": 2.5})
    done = ladder.model_copy(update={"status": "done", "ended_at": 2000.0})
    ladder_finished(store, done, {"speedup": 3.0}, "# done", {"ladder.json": tmp_path / "ladder.json"})
    run = store.runs[f"id-{ladder.id}"]
    assert start_of(store, ladder.id).name.startswith(ladder.id), "a UI's column shows but the beginning"
    assert (run["status"], run["ended_at"], run["note"], run["files"]) == (
        "FINISHED",
        2000.0,
        "# done",
        {"ladder.json"},
    )
    assert metrics_of(store, ladder.id)["speedup"] == {0: "3.0"}
    assert metrics_of(store, variant_key(ladder, "cpu-a"))["speedup"] == {0: "2.5"}


def test_a_hostile_name_stays_in_the_ladder_s_folder(tmp_path: Path) -> None:
    for name in ("../../etc", "a/b", "x" * 300, "<b>\x00"):
        assert run_folder(tmp_path, name, 0).resolve().parent == tmp_path.resolve()


def test_tensorboard_gets_each_curve_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = a_record("cpu-a", epochs=3)
    assert write_events(record, tmp_path)
    assert write_events(record, tmp_path)
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert set(found.Tags()["tensors"]) == {
        "train_loss",
        "train_accuracy",
        "test_loss",
        "test_accuracy",
        "epoch_s",
        "samples_per_s",
    }
    events = found.Tensors("epoch_s")
    assert [(e.step, e.wall_time) for e in events] == [(0, 1010.0), (1, 1020.0), (2, 1030.0)]
    assert not write_events(record.model_copy(update={"epochs": ()}), tmp_path / "none")


def test_what_a_killed_process_wrote_half_is_not_sent(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "cpu-a", 0) / "profile"
    folder.mkdir(parents=True)
    for name in ("simple.txt", "simple.txt.part", "trace.json.tmp"):
        (folder / name).write_text("act")
    publish(tmp_path, [a_record("cpu-a", 0)])
    assert [path.name for path in folder.iterdir()] == ["simple.txt"]


def test_tensorboard_gets_the_tables_of_a_profile(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "memory.txt").write_text("aten::empty 3 MB")
    record = a_record("cpu-a").model_copy(update={"profile": ProfileRecord(schedule="1,2,5,1")})
    assert write_events(record, tmp_path / "tensorboard")
    found = EventAccumulator(str(tmp_path / "tensorboard" / "profile"))
    found.Reload()
    (text,) = found.Tensors("memory")
    assert b"aten::empty 3 MB" in text.tensor_proto.string_val[0]
