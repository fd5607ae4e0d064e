"""`laptime predict --draw`: photographs with what a detector found on them, and nothing else touched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
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
from laptime.predict import images as predicting
from laptime.predict.boxes import Detector
from laptime.predict.drawing import Drawings
from laptime.predict.images import Trained
from laptime.records import Found

app = typer.Typer()
app.command()(command)

CPU = torch.device("cpu")


class Middle(nn.Module):
    """Finds one box in the middle of each photograph."""

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        height, width = images[0].shape[1:]
        sides = torch.tensor([[width / 4, height / 4, width * 3 / 4, height * 3 / 4]])
        return [{"boxes": sides, "labels": torch.tensor([1]), "scores": torch.tensor([0.875])}]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of a detector's run."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("model.pt", "spec.json"):
        (folder / name).touch()
    detector = Detector("detection cpu-x", Middle(), ("cat",), CPU)
    monkeypatch.setattr(predicting, "load", lambda request, device: detector)
    monkeypatch.setattr("laptime.ladder.predict._ask", lambda request, uri: predicting.predict(request))
    return str(folder)


def test_the_boxes_are_drawn_beside_the_originals(tmp_path: Path, run: str) -> None:
    files = [tmp_path / "in" / name for name in ("a/1.png", "b/1.JPG", "b/bad.png")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (200, 120), "navy").save(file)
    files[2].write_bytes(b"\x89PNG no image")
    before = [file.read_bytes() for file in files]
    shown = CliRunner().invoke(app, [run, str(tmp_path / "in"), "--draw", str(tmp_path / "new/out")])
    assert "2 images with boxes in " in shown.stderr
    assert [file.read_bytes() for file in files] == before
    assert sorted(path.name for path in (tmp_path / "new/out").iterdir()) == ["1-2.jpg", "1.jpg"]
    pixels = np.asarray(Image.open(tmp_path / "new/out/1.jpg")).astype(int)
    assert pixels.shape == (120, 200, 3)
    changed = np.abs(pixels - (0, 0, 128)).max(axis=2) > 100
    assert changed[60, 50]
    assert changed[90, 100]
    assert not changed[50:80, 60:140].any()
    assert not changed[100:].any()
    assert changed[15:30, 50:100].mean() > 0.5
    told = CliRunner().invoke(app, [run, str(files[1]), "--json", "--draw", str(tmp_path / "again")])
    assert json.loads(told.stdout)["predictions"][0]["drawn"] == str(tmp_path / "again/1.jpg")


def test_labels_stay_within_the_image(tmp_path: Path) -> None:
    image = np.zeros((100, 160, 3), dtype=np.uint8)
    corner = Found(name="x" * 9, score=0.5, xmin=120, ymin=0, xmax=160, ymax=100)
    path = Drawings(tmp_path / "out", ("x" * 9,)).add("a.png", image, (corner,))
    bright = np.asarray(Image.open(path)).max(axis=2) > 100
    assert bright[4:10, 80:110].any()
    assert not bright[20:90, 10:110].any()
    with pytest.raises(DataError, match=r"a\.jpg can't be written .*: give --draw another folder"):
        Drawings(tmp_path / "out", ("x" * 9,)).add("a.png", image, ())
    assert (np.asarray(Image.open(path)).max(axis=2) > 100).any()


def test_what_is_there_is_left_as_it_is(tmp_path: Path, run: str) -> None:
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png")
    for draw, why in ((tmp_path, "holds files, which are left as they are"), (tmp_path / "a.png", "is no folder")):
        with pytest.raises(UsageError, match=f"--draw .* {why}: give a new or an empty folder"):
            predict(run, [str(tmp_path / "a.png")], Places(tmp_path), How(draw=str(draw)))
    (tmp_path / "empty").mkdir()
    found = predict(run, [str(tmp_path / "a.png")], Places(tmp_path), How(draw=str(tmp_path / "empty")))
    assert found.predictions[0].drawn == str(tmp_path / "empty/a.jpg")


def test_a_classifier_has_no_boxes_to_draw(tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = Trained("cifar cpu-x", nn.Identity(), ("a", "b"), (8, 8), (0.5,) * 3, (0.5,) * 3, CPU)
    monkeypatch.setattr(predicting, "load", lambda request, device: trained)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(UsageError, match="--draw is for the boxes of a detector, and cifar cpu-x says classes alone"):
        predict(run, [str(tmp_path / "a.png")], Places(tmp_path), How(draw=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
