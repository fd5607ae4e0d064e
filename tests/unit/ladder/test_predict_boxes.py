"""`laptime predict` with a detector: the size that photographs become, the boxes, what is shown of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from laptime.cli.predict import predict as command
from laptime.errors import DataError, UsageError
from laptime.ladder.predict import How, predict
from laptime.places import Places
from laptime.predict import boxes as detecting
from laptime.predict import images as predicting
from laptime.predict.boxes import Detector, load_detector
from laptime.spec import DataSpec, OptimizationSpec, RunSpec
from laptime.workloads.detection import resize_to

app = typer.Typer()
app.command()(command)

CPU = torch.device("cpu")
STORE = Path(__file__).parents[2] / "golden" / "formats" / "boxes-1"


class Corners(nn.Module):
    """Finds one box in each photograph's left upper quarter, and is less sure of one in its right lower quarter."""

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        (image,) = images
        assert 0 <= image.min() <= image.max() <= 1
        height, width = image.shape[1:]
        sides = torch.tensor([[0, 0, width / 2, height / 2], [width / 2, height / 2, width, height]])
        return [{"boxes": sides, "labels": torch.tensor([2, 1]), "scores": torch.tensor([0.875, 0.25])}]


def a_detector() -> Detector:
    return Detector("detection cpu-x", Corners(), ("cat", "d\x1bog"), CPU)


def a_spec(*optimizations: str, path: str = str(STORE), asked: str = "photographs") -> RunSpec:
    data = DataSpec(
        asked=asked, kind="folder", digest="d" * 64, path=path, classes=("cat", "dog"), train_count=4, test_count=1
    )
    chosen = tuple(OptimizationSpec(name=name) for name in optimizations)
    return RunSpec(workload="detection", variant="cpu-x", data=data, optimizations=chosen)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """What a run's state dict is loaded into: a net that knows the catalogue's size of images."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(2))
    resize_to(model, 192)
    monkeypatch.setattr(detecting, "load_model", lambda path, spec: model.eval())
    return model


def test_photographs_become_as_large_as_in_training(plain: nn.Module) -> None:
    module = load_detector(Path(), a_spec(), CPU).module
    assert (module.transform.min_size, module.transform.fixed_size) == ((64,), None)
    assert not module.transform.training
    module = load_detector(Path(), a_spec("resident", "fixed-shapes"), CPU).module
    assert module.transform.fixed_size == (96, 64)


@pytest.mark.parametrize(("asked", "side"), [("photographs", 192), ("https://x/a.zip#side=100#seed=1", 100)])
def test_without_the_store_its_size_is_what_was_asked_for(plain: nn.Module, asked: str, side: int) -> None:
    module = load_detector(Path(), a_spec(path="/gone", asked=asked), CPU).module
    assert module.transform.min_size == (side,)


def test_where_nothing_says_the_size_or_no_weight_is_a_number(plain: nn.Module) -> None:
    store = f"/gone/{'d' * 64}"
    with pytest.raises(DataError, match=f"the data store {store} is gone, so nothing says how large"):
        load_detector(Path(), a_spec(path=store, asked=store), CPU)
    plain.weight.data[1] = math.nan
    with pytest.raises(DataError, match=r"the weights in run/model\.pt are no numbers, they have diverged"):
        load_detector(Path("run"), a_spec(), CPU)


@pytest.mark.parametrize(("chosen", "reason"), [((), "it is 400x3 pixels"), (("fixed-shapes",), "")])
def test_a_photograph_of_which_nothing_would_be_left_costs_no_other_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: nn.Module, chosen: tuple[str, ...], reason: str
) -> None:
    sized = load_detector(Path(), a_spec(*chosen), CPU)
    module = Corners()
    module.transform = sized.module.transform
    monkeypatch.setattr(predicting, "load", lambda request, device: replace(sized, module=module))
    files = [str(tmp_path / name) for name in ("thin.png", "fits.png")]
    for file, size in zip(files, ((400, 3), (300, 3)), strict=True):
        Image.new("RGB", size).save(file)
    found = predicting.predict({"folder": "x", "files": files, "device": "cpu", "batch": 1, "score": 0.5})
    assert [p.file for p in found.predictions] == (files[1:] if reason else files)
    assert all(reason in refused.reason for refused in found.refused)


def test_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "load", lambda request, device: a_detector())
    monkeypatch.setattr("laptime.ladder.predict._ask", lambda request, uri: predicting.predict(request))
    for name in ("model.pt", "spec.json"):
        (tmp_path / name).touch()
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png")
    Image.new("L", (8, 8)).save(tmp_path / "b.png")
    (tmp_path / "bad.png").write_bytes(b"\x89PNG no image")
    asked = [str(tmp_path), *(str(tmp_path / name) for name in ("a.png", "bad.png", "b.png"))]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 1
    assert [line.split("/")[-1] for line in shown.stdout.splitlines()] == [
        "a.png  d?og 87.5 %  xmin 0, ymin 0, xmax 20, ymax 10",
        "b.png  d?og 87.5 %  xmin 0, ymin 0, xmax 4, ymax 4",
    ]
    assert "bad.png is unreadable or cut off" in shown.stderr
    assert "2 images, detection cpu-x on cpu" in shown.stderr
    assert "less sure of" not in shown.stderr
    empty = CliRunner().invoke(app, [*asked[:2], "--score", "0.9"])
    assert "a.png  nothing found\n" in empty.stdout
    assert "1 without a box of 90 % or more: a lower --score, down to 0.05, tells what" in empty.stderr
    told = json.loads(CliRunner().invoke(app, [*asked[:2], "--json", "--score", "0.25"]).stdout)
    (prediction,) = told["predictions"]
    first = {"name": "d\x1bog", "score": 0.875, "xmin": 0, "ymin": 0, "xmax": 20, "ymax": 10}
    second = {"name": "cat", "score": 0.25, "xmin": 20, "ymin": 10, "xmax": 40, "ymax": 20}
    assert (prediction["guesses"], prediction["boxes"]) == ([], [first, second])


def test_a_score_is_a_share(tmp_path: Path) -> None:
    for score in (-0.1, 1.5, math.nan):
        with pytest.raises(UsageError, match=r"--score .* is no score: give 0 to 1"):
            predict(str(tmp_path), ["x"], Places(tmp_path), How(score=score))
