"""Annotations that name what is there for type checkers alone, which Python 3.14 evaluates where they are asked for."""

import sys

import pytest
from tests.own_files import PIECES, write
from tests.unit.own.test_lightning_module import ADAMW, lit
from tests.unit.own.test_lightning_module import trained as trained_lit
from tests.unit.own.test_own_pieces import trained

from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect

# Older Pythons evaluate them at once, unless a file asks for their text.
_HEAD = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
_KNOWN = "import torch\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import known\n"
_IMPORTS = ("import torch\n", _HEAD + _KNOWN)
_OPTIMIZER = """

class Own(torch.optim.SGD):
    def __init__(self, params: known.Weights, lr: known.Rate, momentum: known.Rate = 0.0, fused: known.Flag = None):
        super().__init__(params, lr=lr, momentum=momentum, fused=fused)

    def step(self, closure: known.Closure = None) -> known.Loss:
        return super().step(closure)


class """
_PLAIN = (
    _IMPORTS,
    ("\nclass ", _OPTIMIZER),
    ("    batch_size = 16\n", "    batch_size = 16\n\n    def __init__(self, width: known.Width = 4): ...\n\n"),
    ("model(self)", "model(self) -> known.Net"),
    ("loss(self, model, batch)", "loss(self, model: known.Net, batch: known.Batch)"),
    ("optimizer(self, parameters, lr)", "optimizer(self, parameters: known.Weights, lr: known.Rate)"),
    ("torch.optim.SGD(parameters,", "Own(parameters,"),
)
_BY_NAME = (("parameters: known.Weights,", "model: known.Net,"), ("Own(parameters,", "Own(model.parameters(),"))
_SGD = (ADAMW, "return torch.optim.SGD(self.parameters(), 0.01)")
_JUDGED = (
    "    def configure_optimizers(self)",
    """\
    def validation_step(self, batch, batch_idx, dataloader_idx):
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self)""",
)
_LIT = (
    _IMPORTS,
    ("\n\nclass Lit", _OPTIMIZER + "Lit"),
    ("batch, batch_idx)", "batch: known.Batch, batch_idx: known.Index)"),
    ("batch, batch_idx, dataloader_idx)", "batch: known.Batch, batch_idx: known.Index, dataloader_idx: known.Index)"),
    ("torch.optim.SGD(self.", "Own(self."),
)


@pytest.mark.parametrize("changes", [_PLAIN, (*_PLAIN, *_BY_NAME)], ids=["parameters", "model"])
@pytest.mark.parametrize("name", ["no-reads", "fused-optimizer"])
def test_a_training_is_the_same_with_them(file, tmp_path, name, changes):
    plain, *_ = trained(write(tmp_path / f"plain_{file.name}", PIECES), name)
    annotated, *_ = trained(write(file, PIECES, *changes), name)
    assert annotated.losses == plain.losses


def test_what_a_workload_wants_is_told(file):
    wants = ("width: known.Width = 4", "folder: known.Folder")
    with pytest.raises(UsageError, match=r"Workload.* wants 'folder'.*called with nothing"):
        inspect(write(file, PIECES, *_PLAIN, wants))


def test_a_lightning_module_with_an_optimizer_of_its_own_trains_the_same(file, tmp_path):
    plain, *_ = trained_lit(lit(tmp_path / f"plain_{file.name}", _JUDGED, _SGD), "no-reads")
    annotated, *_ = trained_lit(lit(file, _JUDGED, _SGD, *_LIT), "no-reads")
    assert annotated == plain
