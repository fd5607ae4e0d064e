"""Ten thousand classes of two images each: split, trained, compared, reported and predicted from end to end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from mlflow.tracking import MlflowClient
from PIL import Image
from tests.commands import laptime
from torchvision.models import resnet18

COUNT, SIDE = 10_000, 8
# Of the training images those that the preset quick takes.
_TRAINED = 2000
# More names than any table of examples would show.
_LISTED = 20


def colour(number: int) -> tuple[int, int, int]:
    """Of a class: its number in three digits, so that an image says which it is."""
    return 10 * (number // 400), 10 * (number // 20 % 20), 10 * (number % 20)


def number_of(image: np.ndarray) -> int:
    red, green, blue = (int(value) // 10 for value in image.max(axis=(0, 1)))
    return 400 * red + 20 * green + blue


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """`kind N`: without leading zeros, so that names in their order are not numbers in theirs."""
    root = tmp_path_factory.mktemp("many") / "images"
    for number in range(COUNT):
        folder = root / f"kind {number}"
        folder.mkdir(parents=True)
        for name in ("a", "b"):
            pixels = np.full((SIDE, SIDE, 3), colour(number), dtype=np.uint8)
            pixels[: 2 if name == "a" else 4, 0] = 0
            Image.fromarray(pixels).save(folder / f"{name}.png")
    return root


def said(home: Path, *arguments: object) -> str:
    done = laptime(home, *arguments, patience_s=270)
    assert done.returncode == 0, done.stderr
    assert named(done.stderr) <= _LISTED
    return done.stdout


def named(text: str) -> int:
    """How many classes a text names."""
    return len(set(re.findall(r"kind \d+", text)))


def stored(folder: Path) -> dict[int, str]:
    """By label the name that the images of it say, both splits together."""
    found = {}
    for split in ("train", "test"):
        pixels, labels = (np.load(folder / f"{split}_{what}.npy") for what in ("images", "labels"))
        assert (pixels.shape, len(np.unique(labels))) == ((COUNT, SIDE, SIDE, 3), COUNT)
        for image, label in zip(pixels, labels.tolist(), strict=True):
            assert found.setdefault(label, f"kind {number_of(image)}") == f"kind {number_of(image)}"
    return found


def likeliest(run: Path, meta: dict, image: Path) -> int:
    """The label that the run's model gives, by torchvision alone."""
    net = resnet18(num_classes=COUNT)
    net.load_state_dict(torch.load(run / "model.pt", weights_only=True))
    pixels = torch.from_numpy(np.array(Image.open(image))).permute(2, 0, 1).float() / 255
    mean, std = (torch.tensor(meta[name]).view(3, 1, 1) for name in ("mean", "std"))
    with torch.inference_mode():
        return int(net.eval()(((pixels - mean) / std)[None]).argmax())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # MLflow's store in this process
@pytest.mark.long
def test_ten_thousand_classes_from_the_split_to_a_prediction(images, tmp_path):
    out = tmp_path / "ladder"
    asked = ("--variants", "cpu-resident", "--epochs", "1", "--repeats", "1", "--no-profile", "--out", str(out))
    rows = json.loads(said(tmp_path, "optimize", "cifar", "--data", str(images), *asked, "--json"))["rows"]
    assert {row["variant"] for row in rows} == {"cpu-baseline", "cpu-resident"}
    data = json.loads((out / "ladder.json").read_text(encoding="utf-8"))["data"]
    names = stored(Path(data["path"]))
    assert [names[label] for label in range(COUNT)] == data["classes"]
    for row in rows:
        record = json.loads((out / f"{row['variant']}-0" / "record.json").read_text(encoding="utf-8"))
        assert record["status"] == "done", record["error"]
        assert row["variant"] == "cpu-baseline" or record["check"]["passed"]
        (epoch,) = record["epochs"]
        assert epoch["samples"] == _TRAINED
        assert 0 <= epoch["test_accuracy"] < 0.5
    for report in ("comparison.md", "comparison.html", "comparison.json"):
        assert named((out / report).read_text(encoding="utf-8")) <= _LISTED, report
    assert named(said(tmp_path, "compare", str(out))) <= _LISTED
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = [r for e in client.search_experiments() for r in client.search_runs([e.experiment_id])]
    assert len(runs) == 3
    assert all(named(json.dumps([r.data.tags, r.data.params])) <= _LISTED for r in runs)
    chosen = [images / f"kind {number}" / "b.png" for number in (0, 10, 2, 9999)]
    found = json.loads(said(tmp_path, "predict", str(out / "cpu-resident-0"), *map(str, chosen), "--json"))
    meta = json.loads((Path(data["path"]) / "meta.json").read_text(encoding="utf-8"))
    for image, prediction in zip(chosen, found["predictions"], strict=True):
        assert prediction["guesses"][0]["name"] == names[likeliest(out / "cpu-resident-0", meta, image)]
