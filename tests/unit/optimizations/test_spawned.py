"""Loader workers that are spawned (macOS, Windows) or a fork server's (Python 3.14): they get the data by pickle."""

import multiprocessing
import re
import sys
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch
from tests.own_files import AUGMENTED, write
from tests.unit.conftest import make_spec

from laptime.data.boxes.store import data_spec
from laptime.data.boxes.tensors import open_boxes
from laptime.data.tensors import limit, open_tensors
from laptime.engine.build import make_recipe, open_data
from laptime.optimizations.base import Loading
from laptime.optimizations.data import ItemLoader
from laptime.preflight.inspecting import inspect
from laptime.values.trees import leaves

ROOT = Path(__file__).parents[3]
FORMATS = ROOT / "tests" / "golden" / "formats"


@pytest.fixture
def start(monkeypatch):
    """Yields what sets how this process starts others; put back afterwards, and what a user's file brought into it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before, modules = multiprocessing.get_start_method(allow_none=True), set(sys.modules)
    yield lambda method: multiprocessing.set_start_method(method, force=True)
    multiprocessing.set_start_method(before, force=True)
    for name in {"spawned_own", "char_transformer"} - modules:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def server():
    """A fork server that imports torch once for all tests, where each spawned process does for itself."""
    multiprocessing.set_forkserver_preload(["laptime.optimizations.data"])
    yield
    forkserver._forkserver._stop()
    multiprocessing.set_forkserver_preload(["__main__"])


def batches(recipe, workers):
    loader = ItemLoader(replace(recipe, loading=Loading(workers=workers)))
    return [batch for index in range(2) for batch in loader.epoch(index)]


def own(name):
    """The recipe of a user's own file, on a few of its samples."""
    spec = make_spec(workload=name, data=inspect(name), batch_size=8, limit_train=20)
    return make_recipe(spec, open_data(spec), ())


def bands(recipe, folder):
    """Of a store, five tiles of six: the worker maps the file."""
    data = open_tensors(FORMATS / "store-2")
    return replace(recipe, data=replace(data, train=limit(data.train, 5)), batch_size=2)


def photographs(recipe, folder):
    return replace(recipe, data=open_boxes(data_spec(FORMATS / "boxes-1", "boxes")), batch_size=2)


def lightning(recipe, folder):
    page = (ROOT / "docs" / "lightning.md").read_text(encoding="utf-8")
    (module,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "(LightningModule)" in block)
    return own(write(folder / "spawned_own.py", module).replace(":Workload", ":Lit"))


def texts(recipe, folder):
    return own(f"{ROOT / 'examples' / 'char_transformer.py'}:workload")


@pytest.mark.parametrize("data", [bands, photographs, lightning, texts])
def test_a_worker_of_its_own_gives_the_batches_of_the_plain_loader(data, recipe, start, server, tmp_path):
    chosen = data(recipe, tmp_path)
    expected = batches(chosen, 0)
    start("forkserver")
    found = batches(chosen, 1)
    assert len(found) == len(expected) >= 4
    for one, other in zip(found, expected, strict=True):
        pairs = zip(leaves(one.content), leaves(other.content), strict=True)
        assert all(a.equal(b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def test_images(recipe, start):
    expected = batches(recipe, 0)
    start("spawn")
    found = batches(recipe, 1)
    assert len(found) == len(expected) == 6
    for one, other in zip(found, expected, strict=True):
        assert one.inputs.equal(other.inputs)
        assert one.labels.equal(other.labels)


def test_a_file_of_the_users_own(start, tmp_path):
    """Its data set is a class of the file, which the worker imports; what it draws is what a forked worker draws."""
    name = write(tmp_path / "spawned_own.py", AUGMENTED)
    spec = make_spec(workload=name, data=inspect(name), batch_size=8)
    recipe = make_recipe(spec, open_data(spec), ())
    expected = batches(recipe, 1)
    start("spawn")
    assert "workers" not in inspect(name).own.refused
    found = batches(recipe, 1)
    assert len(found) == len(expected) == 10
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.content[0], other.content[0], strict=True))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is the platform's own")
def test_workers_are_forked_unless_another_start_is_chosen(recipe, start):
    """Of Python 3.14 a fork server is the default, to which data are sent that forked workers share."""

    def started():
        return ItemLoader(replace(recipe, loading=Loading(workers=1))).loader.multiprocessing_context.get_start_method()

    start(None)
    assert started() == "fork"
    start("spawn")
    assert started() == "spawn"
