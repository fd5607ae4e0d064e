"""Whatever is wrong with a user's file, the line of theirs that it comes from is named."""

import json
import multiprocessing

import pytest
import torch
from tests.commands import laptime
from tests.own_files import DICTIONARY, LINE_OF_SPARSE, SPARSE, TUPLE, place, write
from tests.unit.own.test_own_before import run

from laptime.catalogue.own import place_of
from laptime.data.own import workers as own_workers
from laptime.data.own.opened import open_own
from laptime.data.own.workers import makers_behind, refused_workers
from laptime.engine.told import explain
from laptime.errors import LaptimeError
from laptime.preflight.inspecting import inspect

# As pandas has it.
FRAME = """

class Frame(list):
    ndim, iloc = 2, property(list)
"""


@pytest.fixture
def spawned():
    """Processes start as on macOS and Windows."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


def refused(name: str) -> str:
    return refused_workers(open_own(*place_of(name))).get("workers", "")


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ([("self.x[i].flatten()", "torch.zeros(190 + i)")], "def __getitem__(self, i):", "which make no batch"),
        ([('{"input_values": self.x[i].flatten(), "labels": self.y[i]}', "torch.tensor(1.0), 2")], "", ""),
        ([("return Net()", "return [Net()]")], "def model(self):", "model() of"),
        ([("return model(**batch).loss", "return model(**batch).loss * float('inf')")], "def loss(self, model", "inf"),
        ([("return model(**batch).loss", "return model(**batch).loss.detach()")], "def loss(self, model", "a graph"),
        ([("lr=lr", "lr=0.5")], "def optimizer(self, parameters, lr):", "trains at 0.5"),
        ([("Rows(X[:64], Y[:64]), Rows(X[64:], Y[64:])", "X")], "def data(self):", "gave Tensor"),
        ([("Rows(X[64:], Y[64:])", "Rows(X[96:], Y[96:])")], "def data(self):", "the test data of"),
        ([("Rows(X[:64], Y[:64])", "Rows(X[:0], Y[:0])")], "def data(self):", "the train data of"),
        ([("Rows(X[:64], Y[:64])", "iter(X)")], "def data(self):", "without __len__"),
        ([("Rows(X[:64], Y[:64])", "{'x': X, 'y': Y}")], "def data(self):", "a dict (training"),
        ([("Rows(X[:64], Y[:64])", "Frame(X[:64])")], "def data(self):", "gives columns by their names"),
        ([('{"input_values": self.x[i].flatten(), "labels": self.y[i]}', "object()")], "def __getitem__(self, i):", ""),
    ],
)
def test_the_line_that_it_comes_from_is_named(file, changes, code, said):
    with pytest.raises(LaptimeError) as caught:
        inspect(write(file, DICTIONARY + FRAME, *changes))
    assert said in str(caught.value)
    assert (place(file, code) if code else f"({file.name}, line ") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ":)" not in str(caught.value)  # a colon of the line itself would stand before that of the sentence


def test_unequal_items_of_a_library_s_data_set_are_told_by_what_made_it(file):
    unequal = "ConcatDataset([TensorDataset(X[:1], Y[:1]), TensorDataset(X[:9, :1], Y[:9])])"
    text = TUPLE.replace("import Dataset,", "import ConcatDataset, Dataset,")
    with pytest.raises(LaptimeError, match="which make no batch") as caught:
        inspect(write(file, text, ("TensorDataset(X[:64], Y[:64])", unequal)))
    assert place(file, "def data(self):") in str(caught.value)


@pytest.mark.parametrize(
    ("kept", "code", "reason"),
    [
        ("self.x, self.y, self.turn = x, y, lambda image: image", "x, y, lambda image: image", "local object"),
        ("self.x, self.y, self.lock = x, y, threading.Lock()", "def __getitem__(self, i):", "cannot pickle"),
        ("self.x, self.y, self.turns = x, y, Turns()", "self.turn = lambda image: image", "local object"),
    ],
)
def test_a_data_set_that_can_not_be_sent_is_told_where_processes_are_spawned(file, spawned, kept, code, reason):
    turns = "import threading\n\n\nclass Turns:\n    def __init__(self):\n        self.turn = lambda image: image\n\n\n"
    name = write(file, DICTIONARY.replace("class Rows", turns + "class Rows"), ("self.x, self.y = x, y", kept))
    said = refused(name)
    assert said.startswith("its data set can't be sent to worker processes (")
    assert reason in said
    assert place(file, code) in said


def test_workers_of_a_file_that_can_be_sent_are_spawned(file, spawned):
    assert refused(write(file, DICTIONARY)) == ""


def test_a_worker_that_waits_for_a_lock_says_where(file, monkeypatch):
    """Held by a thread of before the fork, as locks of libraries are: nobody will ever open it."""
    monkeypatch.setattr(own_workers, "PATIENCE_S", 4)
    lock = "import os\nimport threading\n\nLOCK, HERE = threading.Lock(), os.getpid()\nLOCK.acquire()\n"
    waits = ("        return {", "        if os.getpid() != HERE:\n            LOCK.acquire()\n        return {")
    said = refused(write(file, lock + DICTIONARY, waits))
    number = next(i for i, line in enumerate(file.read_text().splitlines(), 1) if line == "            LOCK.acquire()")
    assert said == (
        f"a worker process can't fetch its items: it gave nothing for 4 s ({file.name}, line {number}: "
        "LOCK.acquire()): a lock or a thread of before?"
    )


def test_how_large_the_data_are_is_found_without_a_draw_or_a_sample(file):
    draws = ("        return {", "        torch.rand(3)\n        return {")
    data = open_own(*place_of(write(file, DICTIONARY, draws)))
    before = torch.get_rng_state()
    assert data.train.nbytes == 64 * (192 * 4 + 8)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_a_file_prints_does_not_mix_with_json(tmp_path):
    says = [
        ("import torch\n", 'import torch\nprint("at import {")\n'),
        ("        x, y = batch", '        print("in the loss {")\n        x, y = batch'),
        ("        return TensorDataset", '        print("in the data {")\n        return TensorDataset'),
    ]
    name = write(tmp_path / "says.py", TUPLE, *says)
    small = ["--epochs", "1", "--profile", "none", "--limit-train", "32", "--limit-test", "16"]
    done = laptime(tmp_path / "home", "run", name, "--variant", "cpu-baseline", "--json", *small, patience_s=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_a_schedule_that_fails_after_some_steps_is_named(file):
    short = "return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)"
    schedule = f"    def schedule(self, optimizer, steps_per_epoch, epochs):\n        {short}\n\n"
    data = open_own(*place_of(write(file, TUPLE, ("    def model", f"{schedule}    def model"))))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    made = data.workload.schedule(optimizer, 8, 1)
    for _ in range(4):
        optimizer.step()
        made.step()
    with pytest.raises(ValueError, match="Tried to step 5 times") as caught:
        made.step()
    told = explain(caught.value, file, makers_behind(data, caught.value))
    assert f"({file.name}, line " in told
    assert "def schedule(self, optimizer" in told


@pytest.mark.parametrize(
    "code", [LINE_OF_SPARSE, "scores = torch.zeros(len(x), 2).index_add_(0, torch.arange(len(x)), model(x))"]
)
def test_what_has_no_kernel_in_a_precision_names_the_line_and_what_helps(file, tmp_path, code):
    """Of backward, in which no line of the user's takes part, that of the forward pass."""
    record = run(write(file, TUPLE, (SPARSE[0], code)), tmp_path, "bf16", check=False)
    assert place(file, code) in record.error
    assert record.error.endswith("leave bf16 out, whose numbers it does not take; see log.txt.")


def test_a_worker_that_has_not_begun_yet_is_told_and_not_ended(file, spawned, monkeypatch):
    """It dies of a signal as long as it imports, torch alone takes longer than this, and torch raises that anywhere."""
    monkeypatch.setattr(own_workers, "PATIENCE_S", 1)
    waits = "import multiprocessing\nimport time\n\nif multiprocessing.parent_process():\n    time.sleep(30)\n"
    said = refused(write(file, waits + DICTIONARY))
    assert said == (
        "a worker process can't fetch its items: it had not begun within 1 s: is much imported, which each spawned "
        "process does anew?"
    )
