"""Users' own workloads, trained for real: every generic optimization beside the plain loop."""

import json
from pathlib import Path

import pytest
from tests.commands import laptime
from tests.own_files import DICTIONARY, ENCODED, TUPLE, WIDE, own_spec, write

from laptime import worker
from laptime.preflight.inspecting import inspect

EXAMPLE = Path(__file__).parents[2] / "examples" / "char_transformer.py"
EXACT = "+no-reads+resident+threads:count=1+keep-pages+fused-optimizer"


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    root = tmp_path_factory.mktemp("own")
    texts = {"tuple": TUPLE.replace(*WIDE), "dictionary": DICTIONARY, "encoded": ENCODED}
    names = {kind: write(root / f"own_{kind}.py", text) for kind, text in texts.items()}
    return {kind: inspect(name) for kind, name in (names | {"characters": f"{EXAMPLE}:workload"}).items()}


def train(data, variant, folder, **changes):
    few = {"batch_size": min(data.own.batch_size, 16), "limit_train": 60, "limit_test": 30, "warmup_epochs": 1}
    given = {"learning_rate": data.own.learning_rate, "save_model": True, **changes}
    return worker.run(own_spec(data, variant, **few, **given), folder)


@pytest.mark.parametrize("kind", ["tuple", "dictionary", "encoded", "characters"])
def test_exact_changes_train_to_the_same_losses(specs, kind, tmp_path):
    data = specs[kind]
    layout = "" if "channels-last" in data.own.refused else "+channels-last+dead-taps"
    plain = train(data, "cpu-baseline", tmp_path / "plain", profile="simple")
    assert plain.status == "done", plain.error
    assert plain.setup.loader == "items"
    assert (plain.epochs[0].test_accuracy is None) == (data.own.quality == "loss")
    assert not (tmp_path / "plain" / "samples.png").exists()
    assert (tmp_path / "plain" / "model.pt").is_file()
    assert plain.inference[0].batch_size == 1
    for name in (f"cpu-baseline{EXACT}", "cpu-baseline+workers:count=1"):
        found = train(data, name, tmp_path / name)
        assert found.status == "done", found.error
        assert found.epochs[0].samples == 60
        assert found.epochs[0].train_loss == pytest.approx(plain.epochs[0].train_loss, rel=1e-4)
        assert found.epochs[0].test_loss == pytest.approx(plain.epochs[0].test_loss, rel=1e-3)
    more = f"cpu-baseline{EXACT}+bf16+ema+onecycle+large-batch:size=32{layout}"
    found = train(data, more, tmp_path / "more")
    assert found.status == "done", found.error
    assert found.check is not None
    assert found.check.passed


def test_what_is_not_for_it_is_refused_by_name(specs, tmp_path):
    found = train(specs["tuple"], "cpu-baseline+flip", tmp_path)
    assert found.status == "failed"
    assert "flip is not for own_tuple: it needs an image classifier" in found.error


@pytest.mark.parametrize("workers", ["", "+workers:count=1"])
def test_an_item_that_breaks_in_training_is_told_with_its_index_and_line(tmp_path, workers):
    broken = ("        return {", '        if i == 40:\n            raise ValueError("no label")\n        return {')
    file = tmp_path / f"late{len(workers)}.py"
    found = train(inspect(write(file, DICTIONARY, broken)), f"cpu-baseline{workers}", tmp_path / "run")
    assert found.status == "failed"
    assert f"ValueError: no label{' [in a loader worker]' * bool(workers)}, at item 40 of Rows (" in found.error
    assert f'({file.name}, line 20: raise ValueError("no label"))' in found.error


@pytest.mark.parametrize("workers", ["", "+workers:count=1"])
def test_an_item_that_ends_an_iteration_does_not_end_the_epoch(tmp_path, workers):
    broken = ("        return {", "        if i == 40:\n            next(iter(()))\n        return {")
    file = tmp_path / f"ending{len(workers)}.py"
    found = train(inspect(write(file, DICTIONARY, broken)), f"cpu-baseline{workers}", tmp_path / "run")
    assert found.status == "failed"
    assert found.error.startswith("RuntimeError: StopIteration was raised, as by next() of what has come to its end")
    assert f", at item 40 of Rows ({file.name}, line 20: next(iter(())))" in found.error


def test_a_file_that_was_changed_is_not_trained(tmp_path):
    data = inspect(write(tmp_path / "changing.py", TUPLE))
    write(tmp_path / "changing.py", TUPLE + "\n# another\n")
    assert "was changed after this run was planned" in train(data, "cpu-baseline", tmp_path / "run").error


def test_the_template_is_written_once_and_runs_as_a_ladder(tmp_path):
    made = laptime(tmp_path / "home", "new", "my_train.py")
    assert made.returncode == 0, made.stderr
    again = laptime(tmp_path / "home", "new", "my_train.py")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    limits = ("--limit-train", "256", "--limit-test", "64", "--epochs", "1", "--repeats", "1", "--no-profile", "--json")
    asked = ("optimize", "my_train.py:workload", "--variants", "cpu-baseline,cpu-resident,cpu-flip", *limits)
    done = laptime(tmp_path / "home", *asked)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {row["variant"]: row for row in found["rows"]}
    assert found["conditions"]["workload"] == "my_train"
    assert rows["cpu-resident"]["epoch_s"] > 0
    assert rows["cpu-baseline"]["quality"] is not None
    assert "needs an image classifier" in rows["cpu-flip"]["reason"]
    lost = laptime(tmp_path / "home", "optimize", "nowhere.py:workload")
    assert (lost.returncode, "there is no file" in lost.stderr) == (2, True)
