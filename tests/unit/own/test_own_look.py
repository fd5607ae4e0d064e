"""What a user's file does beside its training: prints, threads, processes, nets and batches of its own kinds."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.commands import laptime
from tests.own_files import DICTIONARY, TUPLE, own_spec, place, write

from laptime import worker
from laptime.errors import LaptimeError, UsageError
from laptime.preflight.inspecting import inspect

_MADE = "return nn.Sequential("


def looked_at(name: str, home: Path) -> subprocess.CompletedProcess[str]:
    """The look at a file by the command, which prints the baseline's script."""
    return laptime(home, "explain", "cpu-baseline", "--code", "--workload", name, patience_s=120)


def test_bytes_that_are_no_text_a_thread_and_a_process_that_stay_are_no_matter(file, tmp_path):
    """The process holds the output open for longer than anybody would wait; each look starts one."""
    says = "import os, subprocess, sys, threading, time\nimport torch\n"
    stays = [
        r'os.write(1, b"caf\xe9 \xff\n")',
        "threading.Thread(target=time.sleep, args=(600,)).start()",
        'stays = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])',
        f"with open({str(tmp_path / 'pids')!r}, 'a') as pids:",
        "    print(stays.pid, file=pids)",
    ]
    name = write(file, TUPLE, ("import torch\n", says))
    file.write_text("\n".join([file.read_text(), *stays, ""]))
    try:
        done = looked_at(name, tmp_path / "home")
    finally:
        for pid in map(int, (tmp_path / "pids").read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0, done.stderr
    assert "def main" in done.stdout


def test_a_net_that_is_handed_out_again_is_refused_with_the_line(file):
    kept = "NET = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))\n\n\nclass Workload:\n"
    name = write(file, TUPLE, ("class Workload:\n", kept), (_MADE, "return NET or nn.Sequential("))
    with pytest.raises(LaptimeError, match="gave the same weights twice") as caught:
        inspect(name)
    assert place(file, "def model") in str(caught.value)


_COUNTED = """layers, COUNT[0] = nn.Sequential(nn.Flatten()), COUNT[0] + 1
        layers.add_module(f"layer{COUNT[0]}", nn.Linear(192, 2))
        return layers or nn.Sequential("""


def test_a_net_whose_weights_have_other_names_each_time_is_refused_with_the_line(file):
    name = write(file, TUPLE, ("class Workload:\n", "COUNT = [0]\n\n\nclass Workload:\n"), (_MADE, _COUNTED))
    with pytest.raises(LaptimeError, match=r"gave other weights .*layer1\.bias, layer1\.weight, layer3\.b") as caught:
        inspect(name)
    assert place(file, "def model") in str(caught.value)


def test_a_net_whose_layers_are_drawn_is_the_same_with_the_same_draws(file):
    net = "nn.Sequential(nn.Flatten(), nn.Linear(192, wide), nn.Linear(wide, 2))"
    drawn = f"wide = int(torch.randint(10, 1000, ()))\n        return {net} or nn.Sequential("
    assert inspect(write(file, TUPLE, (_MADE, drawn))).own


def test_a_file_with_a_dot_in_its_name_is_refused(tmp_path):
    name = write(tmp_path / "train.v2.py", TUPLE)
    (tmp_path / "train.py").write_text("raise SystemExit('run')\n")
    with pytest.raises(UsageError, match=r"train\.v2\.py has a dot in its name, .* rename the file"):
        inspect(name)


_PAIRS = """

    def collate_fn(self, items):
        first = torch.stack([x for x, _ in items[0::2]])
        second = torch.stack([x for x, _ in items[1::2]])
        return torch.cat([first, second]), torch.stack([y for _, y in [*items[0::2], *items[1::2]]])
"""


def test_a_collate_that_makes_no_batch_of_one_item_trains(file, tmp_path):
    name = write(file, TUPLE + _PAIRS[1:])
    data = inspect(name)
    assert data.own.refused["resident"] == "its collate_fn makes no batch of one item"
    record = worker.run(own_spec(data, "cpu-baseline"), tmp_path / "run")
    assert record.status == "done", record.error


@pytest.mark.parametrize("variant", ["cpu-baseline", "cpu-baseline+resident", "cpu-baseline+workers:count=1"])
def test_an_item_of_another_shape_further_on_is_told_with_the_line_that_makes_it(file, tmp_path, variant):
    odd = """

class Odd(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return (X[i, :, :7] if i == 21 else X[i]), Y[i]
"""
    name = write(file, TUPLE + odd, ("TensorDataset(X[:64], Y[:64])", "Odd()"))
    record = worker.run(own_spec(inspect(name), variant), tmp_path / "run")
    assert record.status == "failed"
    assert place(file, "def __getitem__") in record.error


_GROWING = """

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.mask = nn.Linear(192, 2), None

    def forward(self, x):
        if self.mask is None or len(self.mask) < len(x):
            self.mask = torch.ones(len(x), 1)
        return self.inner(x.flatten(1) * self.mask[: len(x)])
"""


def test_what_a_net_makes_in_evaluation_serves_its_training(file, tmp_path):
    """Batches of the test are larger here than those of the counted epochs."""
    name = write(file, TUPLE + _GROWING, (_MADE, "return Masked() or nn.Sequential("), ("[64:]", "[16:]"))
    data = inspect(name)
    spec = own_spec(data, "cpu-baseline").model_copy(update={"batch_size": 8, "epochs": 2})
    record = worker.run(spec, tmp_path / "run")
    assert record.status == "done", record.error


_TEACHER = "        self.teacher = nn.Linear(2, 2).requires_grad_(False)\n"
_MEAN = "        self.mean = torch.zeros(2)\n"


@pytest.mark.parametrize(
    ("held", "said", "told"),
    [
        (_TEACHER, "self.teacher(scores)", ""),
        (
            _TEACHER,
            "self.teacher.weight.mul_(0.9)",
            "as teacher, which is in no checkpoint",
        ),
        (
            _MEAN,
            "setattr(self, 'mean', 0.9 * self.mean + scores.detach().mean(0))",
            "as mean, which is in no checkpoint",
        ),
        ("", "setattr(self, 'last', scores.detach())", ""),  # that nobody reads
        ("        self.net = None\n", "setattr(self, 'net', model)", ""),
    ],
)
def test_tensors_of_the_workload_that_a_step_changes_are_told(file, held, said, told):
    model = "    def model(self):\n"
    name = write(file, TUPLE, (model, model + held), ("scores = model(x)", f"scores = model(x)\n        {said}"))
    notice = inspect(name).notice
    assert told in notice
    assert bool(told) == bool(notice)


def test_each_thing_that_is_noticed_has_a_line_of_its_own(file):
    some = "    def optimizer(self, parameters, lr):\n        return torch.optim.SGD(parameters[:2], lr=lr)\n\n"
    moved = "scores = model(x)\n        setattr(self, 'mean', 0.9 * self.mean + scores.detach().mean(0))"
    model = "    def model(self):\n"
    held, left = inspect(write(file, TUPLE, (model, some + model + _MEAN), ("scores = model(x)", moved))).notices
    assert "as mean, which is in no checkpoint" in held
    assert left.startswith("optimizer() leaves 2 of 4 parameters out")


def test_items_that_follow_from_their_place_in_the_batch_are_not_called_random(file):
    """The labels of a contrastive loss are the numbers of the rows: read in another order, items have others."""
    rows = 'collate_fn = staticmethod(lambda items: {"input_values": torch.stack([i["input_values"] for i in items]),'
    rows += ' "labels": torch.arange(len(items)) % 2})'
    name = write(file, DICTIONARY, ('    name = "rows"', f'    name = "rows"\n    {rows}'))
    assert inspect(name).own.refused["resident"] == "the values of an item depend on its place in its batch"
