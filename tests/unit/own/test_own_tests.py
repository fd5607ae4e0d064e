"""Test data that are others when they are read again, and a collate_fn of their own."""

import subprocess
import sys

import pytest
import torch
from tests.own_files import TUPLE, write
from tests.unit.own.test_lightning_module import by_hand, lit, trained

from laptime.data.own.opened import open_own
from laptime.engine.evaluate import evaluate
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect

_MIXED = """
def mixed(items):
    x, y = torch.utils.data.default_collate(items)
    share = torch.rand(())
    return share * x + (1 - share) * x.flip(0), y


def doubled(items):
    x, y = torch.utils.data.default_collate(items)
    return 2 * x, y


class Workload:
    collate_fn = staticmethod(mixed)
"""
_WORKLOAD = "\nclass Workload:\n"
_OWN = ("    batch_size = 16\n", "    batch_size = 16\n    test_collate_fn = staticmethod(doubled)\n")


@pytest.fixture(autouse=True)
def paths(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_collate_fn_that_mixes_the_test_data_too_is_told(file):
    notice = inspect(write(file, TUPLE, (_WORKLOAD, _MIXED))).notice
    assert "are others when they are read again, since collate_fn draws for them, too" in notice
    assert "def mixed" in notice
    assert "give the workload a test_collate_fn" in notice


def test_test_data_have_a_collate_fn_of_their_own(file):
    name = write(file, TUPLE, (_WORKLOAD, _MIXED), _OWN)
    assert "read again" not in inspect(name).notice
    data = open_own(file, "Workload")
    images, _ = data.test.batch(range(4))
    assert torch.equal(images, 2 * torch.stack([data.test.dataset[i][0] for i in range(4)]))
    mixed, _ = data.train.batch(range(4))
    assert not torch.equal(mixed, torch.stack([data.train.dataset[i][0] for i in range(4)]))


def test_a_collate_fn_that_mixes_where_gradients_are_wanted_leaves_the_test_data(file):
    asking = _MIXED.replace("    share = ", "    share = 1 if not torch.is_grad_enabled() else ")
    assert "read again" not in inspect(write(file, TUPLE, (_WORKLOAD, asking))).notice


def test_items_that_draw_are_told_with_their_own_line(file):
    drawn = "class Drawn(Dataset):\n    def __len__(self):\n        return 32\n\n"
    drawn += "    def __getitem__(self, i):\n        return X[i] * torch.rand(()), Y[i]\n\n\nclass Workload:"
    notice = inspect(
        write(file, TUPLE, ("class Workload:", drawn), ("TensorDataset(X[64:], Y[64:])", "Drawn()"))
    ).notice
    assert "read again" in notice
    assert "what is judged depends on what they draw" in notice
    assert "test_collate_fn" not in notice


def test_nothing_is_said_of_test_data_that_stay(file):
    assert inspect(write(file, TUPLE)).notice == ""


@pytest.mark.parametrize("kept", [False, True])
def test_a_printed_script_collates_tests_alike(file, tmp_path, kept):
    changes = [(_WORKLOAD, _MIXED), _OWN]
    if kept:
        changes.append(("    collate_fn = staticmethod(mixed)\n", "    collate_fn = staticmethod(doubled)\n"))
        changes.append(
            (
                "test_collate_fn = staticmethod(doubled)",
                "test_collate_fn = staticmethod(torch.utils.data.default_collate)",
            )
        )
    name = write(file, TUPLE, *changes)
    command = [sys.executable, "-m", "laptime", "explain", "cpu-baseline" + "+resident" * kept, "--code"]
    script = tmp_path / "printed.py"
    done = subprocess.run(
        [*command, "--workload", name], capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path
    )
    script.write_text(done.stdout)
    assert ("def taken" in done.stdout) == kept
    looks = (
        f"import printed\nsplit = printed.workload.data()[1]\nloader = printed.{'Resident' if kept else 'Item'}Loader"
    )
    looks += (
        "\nfound, _ = next(loader(split, 0).in_order(4))\nplain = printed.torch.stack([split[i][0] for i in range(4)])"
    )
    looks += f"\nassert printed.torch.equal(found, plain * {1 if kept else 2})\n"
    subprocess.run([sys.executable, "-c", looks], timeout=300, check=True, cwd=tmp_path)


_MIXES = """
mixes = v2.MixUp(num_classes=2)


def mixed(items):
    x, y = torch.utils.data.default_collate(items)
    x, y = mixes(x.reshape(-1, 20, 1, 1), y)  # it takes images
    return x.flatten(1), y


class Points(LightningDataModule):
"""
_LIGHTNING = (
    ("\nclass Points(LightningDataModule):\n", _MIXES),
    ("import torch\n", "import torch\nfrom torchvision.transforms import v2\n"),
    ("batch_size=32, shuffle=True", "batch_size=32, shuffle=True, collate_fn=mixed"),
    # Of mixed labels there is a share of each class.
    ("(scores.argmax(dim=1) == labels)", "(scores.argmax(dim=1) == labels.reshape(len(labels), -1)[:, -1])"),
)


def test_the_loaders_of_a_lightning_module_collate_each_in_its_own_way(file):
    name = lit(file, *_LIGHTNING)
    found, parts, recipe, spec = trained(name, seed=3)
    assert "read again" not in spec.data.notice
    module = sys.modules[file.stem]

    def batches(points, epoch):
        chosen = permutation(256, 3, epoch).split(32)
        return (module.mixed([points.train[i] for i in some.tolist()]) for some in chosen)

    losses, net, points = by_hand(module, batches)
    assert found == pytest.approx(losses, rel=1e-5)
    inputs, labels = points.test.tensors
    tested = evaluate(parts, recipe, recipe.data.test)
    with torch.no_grad():
        scores = net.net(inputs)
    assert float(tested.loss_sum) == pytest.approx(
        float(torch.nn.functional.cross_entropy(scores, labels)) * 64, rel=1e-5
    )
    assert float(tested.correct) == float((scores.argmax(1) == labels).sum())


def test_a_test_loader_of_lightnings_that_mixes_is_told_what_to_give_it(file):
    notice = inspect(lit(file, *_LIGHTNING, ("batch_size=64)", "batch_size=64, collate_fn=mixed)"))).notice
    assert "since collate_fn draws for them, too" in notice
    assert "give their loader a collate_fn of its own" in notice
