"""Sparse tensors of the user's: a graph's adjacency in a batch, and as a buffer of the net."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import STEPPED, by_hand, run

from laptime.preflight.inspecting import inspect

_COUNTS = (
    "\nclass Workload:\n",
    """
def graphs(items):
    x, y = torch.utils.data.default_collate(items)
    return x, y, (torch.ones(len(x), len(x)).tril() / len(x)).TO_SPARSE()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(192, 2)
        self.register_buffer("mixed", (torch.ones(192, 192).triu() / 8).TO_SPARSE())

    def forward(self, x):
        return self.last((self.mixed @ x.flatten(1).T).T)

class Workload:
    collate_fn = staticmethod(graphs)
""",
)
_IN_BATCH = (("x, y = batch", "x, y, near = batch"), ("scores = model(x)", "scores = near @ model(x)"))
_NET = ("    def loss(self", "    def model(self):\n        return Net()\n\n    def loss(self")


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # once a process, so in whichever case is its first
@pytest.mark.parametrize("made", ["to_sparse", "to_sparse_csr"])
@pytest.mark.parametrize("variant", ["cpu-baseline", "cpu-baseline+workers:count=1", "cpu-baseline+fused-optimizer"])
def test_they_train_as_by_hand(file, made, variant, tmp_path):
    counts = (_COUNTS[0], _COUNTS[1].replace("TO_SPARSE", made))
    data = inspect(write(file, TUPLE, counts, _NET, *_IN_BATCH, ("    def loss(", STEPPED)))
    assert data.digest == inspect(f"{file}:Workload").digest
    assert "resident" in data.own.refused
    spec = own_spec(data, variant, learning_rate=0.1, epochs=2, warmup_epochs=1, save_model=True)
    found = run(spec, tmp_path / "run")
    assert found.error is None
    saved = torch.load(tmp_path / "run" / "model.pt", weights_only=False)["mixed"]
    assert torch.equal(saved.to_dense(), torch.ones(192, 192).triu() / 8)
    assert [e.train_loss for e in found.epochs] == pytest.approx(_plain(file), rel=1e-6)


def _plain(file):
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("x, y, near = batch", "x, y, near = graphs(list(zip(*batch)))"), encoding="utf-8")
    return by_hand(file, 2)
