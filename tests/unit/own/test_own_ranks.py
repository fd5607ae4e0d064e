"""Two ranks on users' files: one prepares Lightning's data and the others wait, one evaluates, both share draws."""

import json
import sys
from pathlib import Path

import pytest
import torch
from tests.own_files import JUDGED, TUPLE, WEIGHTED, write
from tests.rank_runs import run_two_ranks
from tests.unit.conftest import make_spec
from tests.unit.own.test_lightning_module import LIT, STEP

from laptime.data.own.opened import open_own
from laptime.data.own.weights import as_weights
from laptime.optimizations.order import draws

DATA = "class Points(LightningDataModule):\n"
PREPARES = """\
    def __init__(self):
        super().__init__()
        self.prepare_data_per_node = PER_NODE

    def prepare_data(self):
        CALLS.append(f"prepared by {os.environ.get('LOCAL_RANK')}")
        time.sleep(1)
        Path(__file__).with_suffix(".txt").write_text("there")

"""
LOOKS = '    def setup(self, stage):\n        CALLS.append(Path(__file__).with_suffix(".txt").read_text())\n'
MODULE = "    def prepare_data(self):\n        CALLS.append('module')\n\n"


PREPARED, WAITED = ["prepared by 0", "there", "module"], ["there"]
# By the file's name: whether each machine prepares, how many ranks stand on one, and what each of both did.
CASES = {
    "lit_one_machine": (True, 2, (PREPARED, WAITED)),
    "lit_two_machines": (True, 1, (PREPARED, PREPARED)),
    "lit_shared_disk": (False, 1, (PREPARED, [*WAITED, "module"])),
}


def lit(file: Path, per_node: bool) -> Path:
    top = "import os\nimport time\nfrom pathlib import Path\n\nCALLS = []\n" + LIT
    data = (DATA, DATA + PREPARES.replace("PER_NODE", str(per_node)))
    write(file, top, data, ("    def setup(self, stage):\n", LOOKS), (STEP, MODULE + STEP))
    return file


# A queue of what was seen, an average of the loss, and what is the same on all ranks: steps, and a running BatchNorm.
_KEEPS = """\
        if model.training:
            self.steps += 1
            model[0].queue.copy_(x.mean(dim=(0, 2, 3)))
            self.average = 0.9 * self.average + float(scores.detach().mean())
        return F.cross_entropy(scores, y), """
KEEPING = (
    ("    batch_size = 16\n", "    batch_size, steps, average = 16, 0, 0.0\n"),
    ("        return F.cross_entropy(scores, y), ", _KEEPS),
    ("nn.ReLU(), ", "nn.BatchNorm2d(4), nn.ReLU(), "),
    ("        return nn.Sequential(", "        net = nn.Sequential("),
    (
        "nn.Linear(256, 2))\n",
        "nn.Linear(256, 2))\n        net[0].register_buffer('queue', torch.zeros(3))\n        return net\n",
    ),
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("own-ranks")
    names = ("result.json", "judged.py", "weighted.py", "keeping.py")
    result, judged, weighted, keeping = (tmp_path / name for name in names)
    write(keeping, TUPLE, *KEEPING)
    write(weighted, WEIGHTED, ("X[:64], Y[:64]", "X[:61], torch.arange(61)"))
    # The number of samples that it sees, in hundreds.
    write(judged, JUDGED, ("return 2 * hits / (found.sum() + true.sum())", "return len(found) / 100"))
    asked = [f"{here}:{lit(tmp_path / f'{name}.py', per_node)}" for name, (per_node, here, _) in CASES.items()]
    run_two_ranks(
        Path(__file__).with_name("rank_of_own.py"), str(result), str(judged), str(weighted), str(keeping), *asked
    )
    return json.loads(result.read_text())


@pytest.mark.parametrize("name", CASES)
def test_one_rank_of_each_machine_prepares_and_the_others_wait(found, name):
    assert found[name] == list(CASES[name][2])


def test_one_rank_evaluates_all_of_the_test_data_and_tells_the_others(found):
    assert found["scores"] == [{"test_score": 0.32}] * 2


@pytest.mark.parametrize("loader", ["resident", "no-reads"])
def test_each_rank_takes_its_part_of_what_is_drawn_by_weights(found, loader):
    order = draws(as_weights(1 + 9 * torch.arange(61)), make_spec().seed, 1)
    parts = [[int(i) for b in order.split(16) for i in b.tensor_split(2)[rank]] for rank in range(2)]
    assert found["drawn"][loader] == parts
    assert len(set(order.tolist())) < 50, "some are drawn more than once"


def test_what_ranks_keep_each_of_their_own_is_told(found):
    assert found["told"]["judged"] == []
    (told,) = found["told"]["keeping"]
    assert told.startswith("each rank has its own 0.queue, average, which follows its part of the batches")


def test_alone_each_module_is_prepared_before_it_is_set_up(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = lit(tmp_path / "lit_alone.py", True)
    data = open_own(file, "Lit")
    data.workload.model()
    assert sys.modules[file.stem].CALLS == ["prepared by None", "there", "module", "module"]
