"""Batches of a class of the user's own that has `to(device)`: trained as by hand, as under Lightning's Trainer."""

import sys

import pytest
import torch
from tests.own_files import write
from tests.unit.own.moved_files import GRAPHS
from tests.unit.own.test_lightning_schedule import by_lightning
from tests.unit.own.test_lightning_skipped import Order
from tests.unit.own.test_own_pieces import trained
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.engine.check import check_one_step
from laptime.errors import RunError, UsageError
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect


@pytest.mark.parametrize("optimization", ["no-reads", "fused-optimizer", "workers", "lightning"])
def test_a_module_trains_on_them_as_under_lightnings_trainer(file, optimization):
    name = write(file, GRAPHS).replace(":Workload", ":Lit")
    options = {"options": {"count": 1}} if optimization == "workers" else {}
    lap, spec, opened, _ = trained(name, optimization, **options)
    module = sys.modules[file.stem]
    module.SEEN.clear()
    module.ORDER = Order(64)
    module.Points = lambda: None
    torch.manual_seed(0)
    by_lightning(module, num_sanity_val_steps=0, limit_val_batches=0)
    assert lap.losses == pytest.approx([float(loss) for loss in module.SEEN], abs=1e-5)
    assert check_one_step(spec, opened, 8).passed


@pytest.mark.parametrize("optimization", ["no-reads", "fused-optimizer"])
def test_a_workload_trains_on_them_as_by_hand(file, optimization):
    lap, spec, opened, _ = trained(write(file, GRAPHS), optimization)
    module, losses = sys.modules[file.stem], []
    torch.manual_seed(0)
    net = module.Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(2):
        for chosen in permutation(64, 0, epoch).split(8):
            batch = module.together([module.Many(0)[index] for index in chosen.tolist()])
            loss = F.cross_entropy(net(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert lap.losses == pytest.approx(losses, abs=1e-5)
    assert check_one_step(spec, opened, 8).passed


@pytest.mark.parametrize("attribute", ["Lit", "Workload"])
def test_what_must_see_into_them_is_left_out(file, attribute):
    data = inspect(write(file, GRAPHS).replace(":Workload", f":{attribute}"))
    assert "when they are read again" not in data.notice
    found = data.own
    assert found.refused["resident"] == "its batches hold something besides tensors"
    assert found.refused["graph"].startswith("a replayed step takes tensors alone")
    assert found.refused["pinned"].endswith("must know each tensor of a batch, and its Graphs moves itself")
    assert found.refused["dp"].startswith("DataParallel can't part its Graphs")
    assert {"fused-optimizer", "compile", "workers", "bf16", "no-reads", "flat-reduce"}.isdisjoint(found.refused)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("len(self.y)", "None"),
            r"is taken for \d+ samples \(.*line \d+.*give Graphs their number as batch_size\.",
        ),
        (
            ("    def to(", "    def go("),
            r"is a Graphs in which no tensor is found.* give its class a method to\(dev",
        ),
        (("batch_size, learning_rate = 8", "micro_batch_size, batch_size, learning_rate = 4, 8"), "holds a Graphs"),
    ],
)
def test_what_can_not_be_done_with_them_is_told(file, change, said):
    with pytest.raises((RunError, UsageError), match=said):
        inspect(write(file, GRAPHS, change))
