"""The script of a detector: for every optimization that its ladder tries, tidy, and training to the losses of a run."""

from __future__ import annotations

import pytest
from tests.unit.data.box_samples import write_photographs
from tests.unit.script.script_runs import EPOCHS, assert_tidy, run_laptime, run_scripts
from typer.testing import CliRunner

from laptime.catalogue import find_optimization
from laptime.cli import app
from laptime.data.fetch import fetch
from laptime.errors import UsageError
from laptime.script import PRINTED_FOR_BOXES, print_script
from laptime.variants import resolve

# Together they take every branch of the templates that runs on a CPU; a step of the whole net takes a second.
RESIDENT = (
    "cpu-baseline+resident+no-reads+channels-last+fused-optimizer+folded-norms+gathered-rois+fixed-shapes:batch=2"
)
VARIANTS = ("cpu-baseline+workers:count=0+linear-decay", RESIDENT)
BF16 = f"{RESIDENT}+bf16"
LONG = "cpu-baseline+workers:count=1+parsed-once+channels-last+folded-norms+threads:count=1+keep-pages"


def variant_with(name: str) -> str:
    device = "cuda" if "cpu" not in find_optimization(name).devices else "cpu"
    return f"{device}-baseline+{name}"


def printed(name: str) -> str:
    return print_script(resolve(name), "detection")


@pytest.mark.parametrize("name", PRINTED_FOR_BOXES)
def test_every_optimization_changes_the_script(name):
    variant = f"{variant_with(name)}:count=0" if name == "workers" else variant_with(name)
    body = printed(variant).partition('\n"""\n')[2]
    assert body != printed(f"{variant.partition('-')[0]}-baseline").partition('\n"""\n')[2]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dead-taps", "its maps are large"),
        ("lightning", "Lightning's Trainer runs the loop"),
        ("sgd-nesterov", "the script of a detector shows what its own ladder tries"),
    ],
)
def test_what_it_does_not_show_is_refused_with_a_reason(name, reason):
    with pytest.raises(UsageError, match=f"no script, because of {name}: {reason}.*Leave {name} out"):
        printed(f"cpu-baseline+{name}")


def test_what_is_for_detection_is_in_no_script_of_images():
    with pytest.raises(UsageError, match="because of parsed-once: it is for the workload detection alone"):
        print_script(resolve("cpu-baseline+parsed-once"), "cifar")


def test_what_is_not_for_a_detector_is_left_out_of_the_named_variants():
    for device in ("cpu", "cuda"):
        found = CliRunner().invoke(app, ["explain", f"{device}-optimized", "--code", "--workload", "detection"])
        assert found.exit_code == 0, found.output
        assert "dead-taps" in found.stderr
        assert "def detected(" in found.stdout


def test_on_a_gpu_the_baseline_asks_for_page_locked_batches():
    assert "pin_memory=" in printed("cuda-baseline")
    assert "pin_memory=" not in printed("cpu-baseline")


def test_what_is_printed_is_tidy(tmp_path):
    names = [*map(variant_with, PRINTED_FOR_BOXES), "cpu-baseline", "cuda-baseline+pinned+fp16", *VARIANTS, BF16, LONG]
    for number, name in enumerate(names):
        (tmp_path / f"script_{number}.py").write_text(printed(name), encoding="utf-8")
    assert_tidy(tmp_path)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("script-boxes")
    return fetch("detection", f"{write_photographs(root / 'photographs', count=3)}#side=64", root)


MARKED = (pytest.param(BF16, marks=pytest.mark.bf16), pytest.param(LONG, marks=pytest.mark.long))


@pytest.mark.parametrize("name", [*VARIANTS, *MARKED])
def test_a_script_trains_to_the_losses_of_the_run(name, store, tmp_path):
    found = run_scripts(tmp_path, {name: (printed(name), ["--data", store.path])})[name]
    record = run_laptime(resolve(name), "detection", store, tmp_path / "run")
    assert len(found) == len(record.epochs) == EPOCHS
    for ours, epoch in zip(found, record.epochs, strict=True):
        assert ours[0] == pytest.approx(epoch.train_loss, abs=1e-6, rel=0)
        assert ours[1:] == pytest.approx((epoch.test_map50, epoch.test_map), abs=1e-4, rel=0)
