"""Loader workers where processes are spawned, as on macOS and Windows: they get the data by pickle, and import anew."""

import multiprocessing
import sys
from dataclasses import replace

import pytest
import torch
from tests.own_files import AUGMENTED, write
from tests.unit.conftest import make_spec

from laptime.engine.build import make_recipe, open_data
from laptime.inspecting import inspect
from laptime.optimizations.base import Loading
from laptime.optimizations.data import ItemLoader


@pytest.fixture
def spawned():
    """Yields what makes this process spawn; put back afterwards."""
    before = multiprocessing.get_start_method()
    yield lambda: multiprocessing.set_start_method("spawn", force=True)
    multiprocessing.set_start_method(before, force=True)


def batches(recipe, workers):
    loader = ItemLoader(replace(recipe, loading=Loading(workers=workers)))
    return [batch for index in range(2) for batch in loader.epoch(index)]


def test_images(recipe, spawned):
    expected = batches(recipe, 0)
    spawned()
    found = batches(recipe, 1)
    assert len(found) == len(expected) == 6
    for one, other in zip(found, expected, strict=True):
        assert one.inputs.equal(other.inputs)
        assert one.labels.equal(other.labels)


def test_a_file_of_the_users_own(spawned, tmp_path, monkeypatch):
    """Its data set is a class of the file, which the worker imports; what it draws is what a forked worker draws."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = write(tmp_path / "spawned_own.py", AUGMENTED)
    spec = make_spec(workload=name, data=inspect(name), batch_size=8)
    recipe = make_recipe(spec, open_data(spec), ())
    expected = batches(recipe, 1)
    spawned()
    assert "workers" not in inspect(name).own.refused
    found = batches(recipe, 1)
    sys.modules.pop("spawned_own")
    assert len(found) == len(expected) == 10
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.content[0], other.content[0], strict=True))
