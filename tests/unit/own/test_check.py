"""The one-step check, of trainings in users' own files."""

import itertools
import sys

import pytest
import torch
from tests.own_files import DICTIONARY, write
from torch import nn

from laptime.engine.build import open_data
from laptime.engine.check import check_one_step, silence
from laptime.inspecting import inspect
from laptime.spec import RunSpec
from laptime.variants import resolve

_NUMBER = itertools.count()


@pytest.mark.parametrize("drawn", ["random.random()", "torch.rand(())"])
def test_both_sides_see_one_reading_of_items_that_are_random(tmp_path, monkeypatch, drawn):
    monkeypatch.setattr(sys, "path", list(sys.path))
    changed = ("self.x[i].flatten()", f"self.x[i].flatten() * {drawn}")
    data = inspect(write(tmp_path / f"checked_{next(_NUMBER)}.py", "import random\n" + DICTIONARY, changed))
    spec = RunSpec(
        workload=data.own.name,
        variant="tried",
        optimizations=resolve("cpu-baseline+workers:count=1+fused-optimizer").optimizations,
        data=data,
        limit_train=40,
    )
    found = check_one_step(spec, open_data(spec), 16)
    assert found.passed, found
    assert found.loss_error < 1e-6


@pytest.mark.parametrize(
    "net", [nn.LSTM(8, 8, 2, dropout=0.5), nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5), nn.Dropout()]
)
def test_dropout_of_every_kind_in_torch_is_silent(net):
    images = torch.randn(4, 5, 8)
    net.train()
    silence(net, frozen=False)
    one, two = net(images), net(images)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
