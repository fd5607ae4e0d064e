"""Small real parts that the unit tests share."""

import importlib
from pathlib import Path

import pytest
import torch

from laptime.data.tensors import ImageData, Split
from laptime.records import LadderRecord
from laptime.spec import DataSpec, RunSpec

BENCHMARKS = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks"
CLASSES = ("red", "green", "blue")
# Source that takes away what a machine with only torch, torchvision, numpy and pydantic does not have.
_NOT_THERE = (
    "boto3",
    "jinja2",
    "lightning",
    "matplotlib",
    "mlflow",
    "prefect",
    "psutil",
    "pynvml",
    "rich",
    "scipy",
    "tensorboard",
    "typer",
    "yaml",
)
BLOCKED = "".join(f"sys.modules[{name!r}] = None\n" for name in _NOT_THERE)


def make_data(train: int = 48, test: int = 12, size: int = 32) -> ImageData:
    """Images whose class is their brightest channel."""
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        labels = torch.arange(count) % len(CLASSES)
        images = torch.randint(0, 120, (count, size, size, 3), dtype=torch.uint8, generator=generator)
        images[torch.arange(count), :, :, labels] += 100
        return Split(images, labels)

    return ImageData(split(train), split(test), CLASSES, (0.4, 0.4, 0.4), (0.2, 0.2, 0.2))


def make_data_spec(path: str = "", train: int = 48, test: int = 12) -> DataSpec:
    return DataSpec(
        asked="folder", kind="folder", digest="0" * 64, path=path, classes=CLASSES, train_count=train, test_count=test
    )


def make_spec(**changes) -> RunSpec:
    fields = {"workload": "cifar", "variant": "cpu-baseline", "data": make_data_spec(), "batch_size": 16}
    return RunSpec(**{**fields, **changes})


def make_ladder_record(**changes) -> LadderRecord:
    fields = {"id": "l", "workload": "cifar", "preset": "full", "device": "cpu", "data": make_data_spec()}
    return LadderRecord(**{**fields, **changes})


@pytest.fixture
def image_data() -> ImageData:
    return make_data()


@pytest.fixture
def recipe(image_data):
    from laptime.engine.build import make_recipe

    return make_recipe(make_spec(), image_data, ())


@pytest.fixture
def script(monkeypatch):
    """Imports a module of `scripts/benchmarks` by its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def gpu(monkeypatch, script):
    """The module of `scripts/bench gpu`."""
    monkeypatch.setattr(script("gpu_plan"), "probe_slow_rungs", lambda probe, *_: probe)
    return script("gpu")
