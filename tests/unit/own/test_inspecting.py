"""A look into a user's file: what it finds, and each mistake in one sentence with the user's own line."""

import re
import sys

import pytest
import torch
from tests.own_files import DICTIONARY, TUPLE, WIDE, write

from laptime.catalogue.own import is_own, place_of
from laptime.data.own.opened import open_own
from laptime.errors import LaptimeError, RunError, UsageError
from laptime.preflight.inspecting import inspect
from laptime.workloads.own import own_optimizer


def test_a_name_is_a_place_in_a_file_or_one_of_the_catalogue():
    assert is_own("a/train.py:workload")
    assert is_own("train.py")
    assert not is_own("cifar")
    with pytest.raises(UsageError, match=r"names no workload in the file: write train\.py:NAME"):
        place_of("train.py")
    with pytest.raises(UsageError, match=r"there is no file .*gone\.py"):
        place_of("gone.py:workload")


def test_what_is_found_in_tuples_with_convolutions(file):
    found = inspect(write(file, TUPLE))
    assert (found.kind, found.train_count, found.test_count, found.path) == ("own", 64, 32, str(file))
    assert found.own.name == file.stem
    assert (found.own.batch_size, found.own.learning_rate, found.own.quality) == (16, 1e-3, "accuracy")
    assert found.own.refused.keys() == {
        *("decoded", "whole-batch", "dead-taps", "flip", "crop"),
        *("label-smoothing", "progressive-resizing", "selective-backprop"),
    }
    assert found.own.refused["dead-taps"] == "no tap of its kernels meets padding alone"


def test_what_left_every_kernel_whole_is_told(file):
    held = ("nn.Flatten(), ", "nn.Flatten(), nn.Identity(), ")
    watched = ("        scores = model(x)", "        model[0].register_forward_hook(print)\n        scores = model(x)")
    refused = inspect(write(file, TUPLE, WIDE, held, watched)).own.refused
    assert refused["dead-taps"] == "0 is left whole: it has hooks"


def test_what_is_found_in_dictionaries_without_an_accuracy(file):
    found = inspect(write(file, DICTIONARY)).own
    assert (found.name, found.quality) == ("rows", "loss")
    assert found.refused["dead-taps"] == "its model has no convolutions"
    assert found.refused["decay"] == "its own optimizer settles the decay"
    assert "resident" not in found.refused


def test_the_digest_is_that_of_the_data_and_not_of_the_file(file):
    first = inspect(write(file, TUPLE))
    file.write_text(file.read_text() + "\n# another\n")
    same = inspect(f"{file}:Workload")
    assert (same.digest, same.own.file != first.own.file) == (first.digest, True)
    del sys.modules[file.stem]
    assert inspect(write(file, TUPLE, ("manual_seed(0)", "manual_seed(1)"))).digest != first.digest


def test_the_digest_of_random_items_is_that_of_their_shapes(file):
    drawn = ("self.x[i].flatten()", "self.x[i].flatten() * random.random()")
    name = write(file, "import random\n" + DICTIONARY, drawn)
    assert inspect(name).digest == inspect(name).digest


@pytest.mark.parametrize(
    ("collate", "reason"),
    [
        ("pad(items)", "its batches come in several"),
        ("default_collate([{**i, 'text': 'a'} for i in items])", "tensors alone"),
        ("default_collate(items)", None),
    ],
)
def test_where_no_graph_can_be_recorded(file, collate, reason):
    more = DICTIONARY.replace("model(**batch).loss", 'model(batch["input_values"][:, :192], batch["labels"]).loss')
    more += """
from torch.utils.data import default_collate

def pad(items):
    batch = default_collate(items)
    longer = torch.zeros(len(items), 192 + int(items[0]["input_values"][0].abs() * 1000))
    longer[:, :192] = batch["input_values"]
    return {"input_values": longer, "labels": batch["labels"]}
"""
    named = ('    name = "rows"', f'    name = "rows"\n    collate_fn = staticmethod(lambda items: {collate})')
    found = inspect(write(file, more, named)).own.refused
    assert (reason is None and "graph" not in found) or reason in found["graph"]


SIZED = TUPLE.replace("nn.Flatten(), nn.Linear(256, 2)", "nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)")
SMALLER = "TensorDataset(F.avg_pool2d(X[64:], 2), Y[64:])"
PADDED = """
    @staticmethod
    def collate_fn(items):
        x, y = torch.utils.data.default_collate(items)
        side = 8 + int(y[0]) * 4
        return F.interpolate(x, (side, side)), y
"""


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (("TensorDataset(X[64:], Y[64:])", SMALLER), "8x8, 4x4"),
        (("    batch_size = 16\n", f"    batch_size = 16\n{PADDED}"), "8x8, 12x12|12x12, 8x8"),
    ],
    ids=["in test", "in training"],
)
def test_images_of_several_sizes_are_not_for_what_is_made_for_one(file, change, seen):
    found = inspect(write(file, SIZED, change)).own.refused
    assert found["dead-taps"] == found["products"]
    assert re.search(rf"one size of maps alone, and its images come in several \(({seen})\)", found["products"])
    assert "channels-last" not in found


def test_an_image_beside_another_of_its_own_size_is_of_one_size(file):
    masks = ("TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])", "Pairs(0, 64), Pairs(64, 96)")
    more = """

class Pairs(Dataset):
    def __init__(self, first, last):
        self.first, self.last = first, last

    def __len__(self):
        return self.last - self.first

    def __getitem__(self, i):
        return X[self.first + i], X[self.first + i, :1, :4, :4], Y[self.first + i]
"""
    found = inspect(write(file, SIZED + more, WIDE, masks, ("x, y = batch", "x, _, y = batch"))).own.refused
    assert "dead-taps" not in found


GIVES = "return SimpleNamespace(loss=F.cross_entropy(logits, labels), logits=logits)"


@pytest.mark.parametrize(
    ("gives", "loss", "reason"),
    [
        (GIVES, "model(**batch).loss", "can't gather what its model gives, a SimpleNamespace"),
        ("return {'loss': F.cross_entropy(logits, labels)}", "model(**batch)['loss']", "gives a loss"),
        ("return F.cross_entropy(logits, labels)", "model(**batch)", "gives a loss or more of a whole batch"),
        ("return F.cross_entropy(logits, labels)[None]", "model(**batch)[0]", "gives a tensor of shape (1,) of 8"),
        ("return logits, None", "F.cross_entropy(model(**batch)[0], batch['labels'])", None),
    ],
)
def test_a_net_that_gives_its_loss_is_not_for_data_parallel(file, gives, loss, reason):
    """It would gather one loss from each GPU, and the user's mean would be blamed for its shape."""
    found = inspect(write(file, DICTIONARY, (GIVES, gives), ("model(**batch).loss", loss))).own.refused
    assert (reason is None and "dp" not in found) or reason in found["dp"]


@pytest.mark.parametrize(("kind", "there"), [("SGD", True), ("AdamW", True), ("NAdam", False), ("Rprop", False)])
def test_an_optimizer_that_does_not_start_from_zeros_is_not_recorded(file, kind, there):
    name = write(file, DICTIONARY, ("SGD(parameters, lr=lr, momentum=0.9)", f"{kind}(parameters, lr=lr)"))
    assert ("graph" not in inspect(name).own.refused) is there


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("self.x[i].flatten()", "self.x[i].flatten() + torch.rand(1)"), "differ when they are read twice"),
        (('"labels": self.y[i]}', '"labels": self.y[i], "text": "a"}'), "something besides tensors"),
        (
            ('    name = "rows"', '    name = "rows"\n    collate_fn = staticmethod(lambda items: pad(items))'),
            "depend on what else is in its batch",
        ),
    ],
)
def test_why_samples_are_not_kept(file, change, reason):
    more = DICTIONARY.replace("model(**batch).loss", 'model(batch["input_values"], batch["labels"]).loss')
    more += """
def pad(items):
    x = torch.stack([i["input_values"] for i in items])
    return {"input_values": x - x.amax(), "labels": torch.stack([i["labels"] for i in items])}
"""
    assert reason in inspect(write(file, more, change)).own.refused["resident"]


def test_data_that_belong_to_one_process_leave_workers_out(file):
    kept = ("self.x, self.y = x, y", "self.x, self.y, self.pid = x, y, os.getpid()")
    looked = 'if os.getpid() != self.pid:\n            raise OSError("opened elsewhere")\n        return {'
    refused = inspect(write(file, "import os\n" + DICTIONARY, kept, ("return {", looked))).own.refused
    assert "a worker process can't fetch its items: OSError: opened elsewhere" in refused["workers"]
    assert 'raise OSError("opened elsewhere")' in refused["workers"]


@pytest.mark.parametrize(
    ("thing", "line", "reason"),
    [
        ("(lambda: 0)", "return [*default_collate(items), (lambda: 0)]", "local object"),
        ("(i for i in items)", "def collate_fn(self, items)", "cannot pickle"),
    ],
)
def test_a_batch_that_no_process_can_send_leaves_workers_out(file, thing, line, reason):
    """A function is named by its own line, what says nothing of its making by the function that made the batch."""
    text = f"""
from torch.utils.data import default_collate

def collate(items):
    return [*default_collate(items), {thing}]
"""
    named = ("batch_size = 16", "batch_size = 16\n\n    def collate_fn(self, items):\n        return collate(items)")
    name = write(file, TUPLE + text, named, ("x, y = batch", "x, y, _ = batch"))
    found = inspect(name).own.refused
    number = file.read_text().splitlines().index(next(n for n in file.read_text().splitlines() if line in n)) + 1
    assert reason in found["workers"]
    assert f"({file.name}, line {number}: {line})" in found["workers"]
    assert "resident" in found


def test_what_it_prints_stays_its_own_affair(file, capsys):
    found = inspect(write(file, TUPLE, ("        x, y = batch", '        print("{not json")\n        x, y = batch')))
    assert found.own.quality == "accuracy"
    assert "{not json" in capsys.readouterr().out


def test_modules_beside_the_file_are_found(file):
    beside = file.with_name(f"{file.stem}_beside.py")
    beside.write_text("WIDTH = 256\n")
    kept = "import sys, types\nsys.modules['torch.kept'] = m = types.ModuleType('kept')\nm.__file__ = '/of/torch.py'\n"
    text = f"{kept}from {beside.stem} import WIDTH\n" + TUPLE
    assert inspect(write(file, text, ("Linear(256", "Linear(WIDTH"))).own.beside == (beside.name,)
    del sys.modules["torch.kept"]


def test_a_function_or_an_object_is_a_workload_too(file):
    write(file, TUPLE + "\n\ndef make():\n    return Workload()\n\n\nready = Workload()\n")
    assert inspect(f"{file}:make").own.attribute == "make"
    assert inspect(f"{file}:ready").own.attribute == "ready"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("import torch\n", "import nothing_of_that_name\n")], r"importing .* failed: ModuleNotFoundError.*line 1"),
        ([("class Workload:", "class Workload")], r"SyntaxError: [^()]* \(.*class Workload"),
        ([("class Workload:", "class Other:")], r"has no 'Workload' \(it defines Other\)"),
        ([("def loss", "def lose")], r"is no workload, since it has no loss\(\)"),
        ([("Linear(256, 2)", "Linear(99, 2)")], r"loss\(\) failed: RuntimeError: .*99x2.*: scores = model\(x\)"),
        ([("x, y = batch", "x, y = batch[9]")], r"loss\(\) failed: IndexError.*line \d+: x, y = batch\[9\]"),
        ([("cross_entropy(scores, y)", 'cross_entropy(scores, y, reduction="none")')], r"shape \(\d+,\).*mean over"),
        ([("return F.cross_entropy(scores, y),", "return float(0),")], r"loss\(\) gave \(float,.*return the mean"),
        ([("F.cross_entropy(scores, y),", "F.cross_entropy(scores, y) * float('nan'),")], r"gave nan on the first"),
        ([("F.cross_entropy(scores, y),", "F.cross_entropy(scores, y).detach(),")], "a loss without a graph"),
        ([(".float().mean()", ".float().sum()")], "as accuracy: return a share from 0 to 1"),
        ([("TensorDataset(X[:64], Y[:64]),", "TensorDataset(X[:0], Y[:0]),")], "the train data .* are empty"),
        ([("TensorDataset(X[:64], Y[:64]),", "iter(X),")], "without __len__"),
        ([("return nn.Sequential(", "return list(")], r"model\(\) failed: TypeError.*return list\("),
        ([("return TensorDataset(X[:64], Y[:64]), ", "return ")], "return two data sets"),
        ([("batch_size = 16", "batch_size = 0")], "batch_size of .* is 0: give a number above 0"),
        ([("batch_size = 16", 'name = "cifar"')], "the name 'cifar' is not free"),
    ],
)
def test_mistakes_are_told_with_the_users_own_line(file, changes, message):
    with pytest.raises(LaptimeError, match=message) as caught:
        inspect(write(file, TUPLE, *changes))
    assert file.name in str(caught.value) or "name" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_item_is_named(file):
    broken = ("        return {", '        if i == 5:\n            raise ValueError("no label")\n        return {')
    with pytest.raises(
        RunError, match=r"item 5 of the training data failed: ValueError: no label \(.*raise ValueError"
    ):
        inspect(write(file, DICTIONARY, broken))


def test_items_of_unequal_shapes_ask_for_a_collate_function(file):
    unequal = ("self.x[i].flatten()", "torch.zeros(190 + i)")
    with pytest.raises(RunError, match=r"items 0 and 1 .* \[\(190,\), \(\)\] and \[\(191,\), \(\)\].*collate_fn"):
        inspect(write(file, DICTIONARY, unequal))


def test_an_optimizer_that_ignores_the_learning_rate_is_told(file):
    with pytest.raises(UsageError, match=r"trains at 0\.5 where it was given lr=0\.001 \(.*\): pass lr on"):
        inspect(write(file, DICTIONARY, ("lr=lr", "lr=0.5")))


@pytest.mark.parametrize("kind", ["AdamW(parameters, lr=lr, weight_decay=0.1)", "SGD(parameters, lr=lr, momentum=0.9)"])
def test_a_users_optimizer_takes_what_its_class_knows(file, kind):
    name = write(file, DICTIONARY, ("SGD(parameters, lr=lr, momentum=0.9)", kind))
    data = open_own(*place_of(name))
    make = own_optimizer(data.workload)
    net = torch.nn.Linear(2, 1)
    made = make(net, 0.25, fused=True, nothing=1)
    (group,) = made.param_groups
    assert (group["fused"], group["lr"], group["params"][0] is net.weight) == (True, 0.25, True)
    assert group.get("momentum", 0.9) == 0.9
    assert group["weight_decay"] == (0.1 if "AdamW" in kind else 0)


def test_a_users_optimizer_gets_a_list_of_parameters(file):
    chosen = ("SGD(parameters, lr=lr, momentum=0.9)", "SGD([p for p in parameters if p.requires_grad], lr=lr)")
    assert inspect(write(file, DICTIONARY, chosen)).own.name == "rows"
