"""How long a ladder should take, before any ran on this machine."""

import pytest
from tests.unit.compare.compare_examples import record

from laptime.ladder.estimate import expected
from laptime.ladder.request import LadderRequest
from laptime.places import Places
from laptime.records import write_json
from laptime.variants import resolve


def seconds_of(tmp_path, **options):
    found = expected(LadderRequest(**options), "cpu", Places(tmp_path))
    assert found.seconds == sum(r.seconds for r in found.rows)
    return {r.variant: r.seconds for r in found.rows}


def test_a_full_ladder_counts_each_part_that_is_left_out(tmp_path):
    rows = seconds_of(tmp_path, preset="full")
    parts = {o.name for o in resolve("cpu-optimized").optimizations}
    assert rows.keys() >= {f"cpu-optimized-without-{name}" for name in parts}
    # Beside its rounds each part has pairs with the whole.
    assert rows["cpu-optimized"] < rows["cpu-optimized-without-threads"] < rows["cpu-optimized-without-dead-taps"]
    short = seconds_of(tmp_path, preset="full", ablation=False)
    assert set(rows) - set(short) == {n for n in rows if "-without-" in n} - {"cpu-optimized-without-dead-taps"}


def test_a_quick_ladder_leaves_no_part_out_unless_asked(tmp_path):
    assert len(seconds_of(tmp_path)) == 5
    assert len(seconds_of(tmp_path, ablation=True)) > 10


def test_a_profile_beside_inference_is_counted_once_for_each_variant(tmp_path):
    (full, *_), (none, *_) = (list(seconds_of(tmp_path, profile=p, repeats=3).values()) for p in ("full", "none"))
    assert full - none == 9.0


def test_a_preset_that_profiles_the_ends_alone_is_counted_so(tmp_path):
    full, none = (seconds_of(tmp_path, workload="eurosat", profile=p) for p in ("full", "none"))
    assert {n for n in full if full[n] != none[n]} == {"cpu-baseline", "cpu-optimized"}


def test_a_preset_without_rungs_trains_the_baseline_and_the_optimized_variant(tmp_path):
    assert list(seconds_of(tmp_path, workload="eurosat")) == ["cpu-baseline", "cpu-optimized"]


def test_limits_count_as_far_as_there_are_images(tmp_path):
    def trained(there, train=None, test=None):
        request = LadderRequest(preset="full", variants=("cpu-baseline",), limit_train=train, limit_test=test)
        (row,) = expected(request, "cpu", Places(tmp_path), there).rows
        return row.training_s

    assert trained(None) == trained((50_000, 10_000)) == trained((50_000, 10_000), 60_000, 60_000)
    assert trained((300, 60)) == trained((300, 60), 2000, 1000) == trained(None, 300, 60) < trained(None) / 50


@pytest.mark.parametrize(
    ("workload", "asked", "used"),
    [
        ("cifar", "photos", 40.0),  # of the usual size, which is 32
        ("cifar", "others#size=32x32", 40.0),
        ("cifar", "photos#size=96", 400.0),
        ("cifar", "photos#seed=1#size=96x96", 400.0),
        ("cifar", "photos#size=48", None),
        ("cifar", "photos#size=96x48", None),
        ("detection", "photos#side=96", 400.0),
        ("detection", "photos#side=192", 40.0),
    ],
)
def test_runs_on_images_of_another_size_say_nothing(tmp_path, workload, asked, used):
    for number, (place, epoch_s) in enumerate((("photos", 40.0), ("photos#size=96", 400.0), ("photos#side=640", 90.0))):
        run = record("cpu-baseline", epoch_s)
        spec = run.spec.model_copy(update={"data": run.spec.data.model_copy(update={"asked": place})})
        write_json(tmp_path / f"runs/{number}-{workload}-0/a/record.json", run.model_copy(update={"spec": spec}))
    given = {"workload": workload, "variants": ("cpu-baseline",), "data": asked, "profile": "none"}
    count = {"limit_train": 50_000, "limit_test": 3, "epochs": 1, "warmup_epochs": 0, "repeats": 1}
    found = expected(LadderRequest(**given, **count), "cpu", Places(tmp_path)).seconds
    assert found == (None if used is None else pytest.approx(2 + 8 + used, rel=0.02))
