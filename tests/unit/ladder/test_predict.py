"""`laptime predict`: a run folder's model, images of every kind, and what can't be one."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
import typer
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

from laptime.cli.predict import predict as command
from laptime.errors import DataError, UsageError
from laptime.ladder.predict import How, find_images, find_run, predict
from laptime.places import Places
from laptime.predict import images as predicting
from laptime.predict.images import Trained, best_device, prepared, probabilities
from laptime.records import write_json
from laptime.spec import DataSpec, RunSpec

app = typer.Typer()
app.command()(command)

CLASSES = ("blue", "green", "red")
NAMELESS = DataSpec(asked="", kind="folder", digest="", path="", classes=CLASSES, train_count=3, test_count=3)


class Brightest(nn.Module):
    """The class is the channel with the largest mean, so that no training is needed."""

    def forward(self, images: Tensor) -> Tensor:
        assert len(images) > 1
        return 10 * images.mean(dim=(2, 3)).flip(1)


def a_model(module: nn.Module | None = None, classes: tuple[str, ...] = CLASSES) -> Trained:
    device = torch.device("cpu")
    return Trained("cifar cpu-x", module or Brightest(), classes, (8, 8), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), device)


def save(path: Path, colour: tuple[int, ...], size: tuple[int, int] = (8, 8), mode: str = "RGB") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return str(path)


def asked(files: list[str], batch: int = 2) -> dict[str, object]:
    return {"folder": "x", "files": files, "device": "cpu", "batch": batch}


def test_images_of_all_sizes_and_modes_are_predicted_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "load", lambda request, device: a_model())
    files = [
        save(tmp_path / "a.png", (250, 0, 0)),
        save(tmp_path / "b.jpg", (0, 250, 0), (300, 20)),
        save(tmp_path / "c.png", (0, 0, 250, 255), (5, 3), "RGBA"),
    ]
    (tmp_path / "bad.png").write_bytes(b"\x89PNG no image")
    found = predicting.predict(asked([files[0], str(tmp_path / "bad.png"), *files[1:]]))
    assert [p.file for p in found.predictions] == files
    assert [p.guesses[0].name for p in found.predictions] == ["red", "green", "blue"]
    assert all(sum(g.probability for g in p.guesses) == pytest.approx(1) for p in found.predictions)
    (refused,) = found.refused
    assert refused.file.endswith("bad.png")
    assert "unreadable or cut off" in refused.reason


def test_a_decompression_bomb_is_refused_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "load", lambda request, device: a_model())
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    files = [save(tmp_path / "big.png", (0, 0, 0), (40, 40)), save(tmp_path / "small.png", (9, 0, 0))]
    found = predicting.predict(asked(files))
    assert [p.file for p in found.predictions] == files[1:]
    assert "more pixels than is safe" in found.refused[0].reason


def test_an_image_becomes_what_training_made_of_it() -> None:
    generator = np.random.default_rng(0)
    own = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    expected = (torch.tensor(own).permute(2, 0, 1).float() / 255 - 0.5) / 0.25
    assert torch.equal(prepared(own, a_model())[0], expected)
    large = generator.integers(0, 256, (40, 24, 3), dtype=np.uint8)
    stored = np.asarray(Image.fromarray(large).resize((8, 8), Image.Resampling.BICUBIC))
    steps = (prepared(large, a_model())[0] * 0.25 + 0.5) * 255 - torch.tensor(stored).permute(2, 0, 1)
    assert steps.abs().max() < 1.5


def test_images_need_not_be_square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"classes": CLASSES, "workload": "eurosat", "variant": "x", "mean": (0.5,) * 3, "std": (0.25,) * 3}
    of_now = predicting._trained(Brightest(), known | {"image_size": [6, 8]}, torch.device("cpu"))
    assert prepared(np.zeros((40, 24, 3), dtype=np.uint8), of_now).shape == (1, 3, 6, 8)
    assert predicting._trained(Brightest(), known | {"image_size": 8}, torch.device("cpu")).size == (8, 8)
    for name, size in (("fits", (6, 8)), ("other", (8, 6))):
        tifffile.imwrite(tmp_path / f"{name}.tif", np.full((*size, 3), 9, dtype=np.uint16), photometric="rgb")
    measured = replace(of_now, bands=(1, 2, 3), scale=4000)
    monkeypatch.setattr(predicting, "load", lambda request, device: measured)
    picture = save(tmp_path / "picture.png", (1, 2, 3))
    found = predicting.predict(asked([str(tmp_path / "fits.tif"), str(tmp_path / "other.tif"), picture]))
    assert [Path(p.file).name for p in found.predictions] == ["fits.tif"]
    refused, no_bands = found.refused
    assert no_bands.reason.endswith(
        "picture.png is no TIFF, and bands are read of TIFFs alone: the model was trained on bands 1,2,3, so give a "
        "GeoTIFF that has them."
    )
    assert "other.tif is 6x8 and the model was trained on bands of 8x6: resample it." in refused.reason


def test_outputs_that_are_no_probabilities_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Diverged(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.full((len(images), 3), torch.nan)

    monkeypatch.setattr(predicting, "load", lambda request, device: a_model(Diverged()))
    found = predicting.predict(asked([save(tmp_path / "a.png", (1, 2, 3))]))
    assert found.predictions == ()
    assert "diverged" in found.refused[0].reason
    with pytest.raises(DataError, match=r"gives \(3,\) values an image and knows 2 classes"):
        probabilities(a_model(classes=("a", "b")), torch.zeros(3, 3, 8, 8))


def test_a_model_whose_data_is_gone_says_how_to_get_it_back(tmp_path: Path) -> None:
    known = {"classes": ["a"], "image_size": 8, "workload": "cifar", "variant": "x"}
    with pytest.raises(DataError, match="laptime data fetch cifar"):
        predicting._trained(Brightest(), known, torch.device("cpu"))
    with pytest.raises(DataError, match="does not say what a prediction needs"):
        predicting._trained(Brightest(), {}, torch.device("cpu"))


def test_the_command_without_a_usable_model_is_one_sentence(tmp_path: Path) -> None:
    write_json(tmp_path / "spec.json", RunSpec(workload="cifar", variant="cpu-x", data=NAMELESS))
    (tmp_path / "model.pt").write_bytes(b"nothing")
    image = save(tmp_path / "a.png", (1, 2, 3))
    result = CliRunner().invoke(app, [str(tmp_path), image])
    assert isinstance(result.exception, DataError)
    assert "holds no state dict" in str(result.exception)
    assert "\n" not in str(result.exception)


def test_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "load", lambda request, device: a_model())
    image = save(tmp_path / "re\x1b[31md.png", (250, 0, 0))
    answer = predicting.predict(asked([image]))
    monkeypatch.setattr("laptime.ladder.predict._ask", lambda request, uri: answer)
    (tmp_path / "model.pt").touch()
    (tmp_path / "spec.json").touch()
    result = CliRunner().invoke(app, [str(tmp_path), image, "nowhere.png"])
    assert result.exit_code == 1
    assert "\x1b" not in result.output
    assert "re?[31md.png  red 100.0 %  " in result.stdout
    assert "nowhere.png does not exist" in result.stderr
    result = CliRunner().invoke(app, [str(tmp_path), image, "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["predictions"][0]["guesses"][0]["name"] == "red"


def test_a_run_is_a_folder_a_ladder_or_an_id(tmp_path: Path) -> None:
    write_json(tmp_path / "comparison.json", {"baseline": "b", "headlines": [{"kind": "fastest", "variant": "f+x"}]})
    for name in ("b-0", "f_x-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec.json").touch()
    (tmp_path / "b-0" / "model.pt").touch()
    assert find_run(str(tmp_path)) == {"folder": str(tmp_path / "b-0")}
    (tmp_path / "f_x-0" / "model.pt").touch()
    assert find_run(str(tmp_path)) == {"folder": str(tmp_path / "f_x-0")}
    assert find_run(str(tmp_path / "b-0")) == {"folder": str(tmp_path / "b-0")}
    assert find_run("a" * 32) == {"run_id": "a" * 32}
    (tmp_path / "empty").mkdir()
    for wrong, why in ((str(tmp_path / "empty"), r"holds no model\.pt"), ("xyz", "neither a run's folder nor")):
        with pytest.raises(UsageError, match=why):
            find_run(wrong)
    (tmp_path / "comparison.json").write_text("[1]")
    with pytest.raises(UsageError, match=r"holds no model\.pt"):
        find_run(str(tmp_path))
    (tmp_path / "comparison.json").unlink()
    with pytest.raises(UsageError, match=r"no comparison yet.*, such as b-0, or go on"):
        find_run(str(tmp_path))


def test_folders_give_their_images_in_order_and_pipes_are_never_opened(tmp_path: Path) -> None:
    first = save(tmp_path / "in" / "a" / "2.png", (0, 0, 0))
    second = save(tmp_path / "in" / "b.JPG", (0, 0, 0))
    (tmp_path / "in" / "notes.txt").touch()
    (tmp_path / "in" / ".hidden.png").touch()
    os.mkfifo(tmp_path / "pipe.png")
    os.mkfifo(tmp_path / "in" / "pipe.png")
    files, refused = find_images([str(tmp_path / "in"), str(tmp_path / "pipe.png"), str(tmp_path / "none.png")])
    assert files == [second, first]
    assert ["is no file" in refused[0].reason, "does not exist" in refused[1].reason] == [True, True]
    (tmp_path / "empty").mkdir()
    assert "holds no image" in find_images([str(tmp_path / "empty")])[1][0].reason


def test_a_name_that_is_no_text_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(b"")
    (tmp_path / os.fsdecode(b"bad\xff.png")).write_bytes(b"")
    files, refused = find_images([str(tmp_path)])
    assert [Path(name).name for name in files] == ["good.png"]
    assert "UTF-8" in refused[0].reason
    assert refused[0].file.encode()


def test_nonsense_is_refused_before_a_process_starts(tmp_path: Path) -> None:
    (tmp_path / "model.pt").touch()
    (tmp_path / "spec.json").touch()
    places, run = Places(tmp_path), str(tmp_path)
    with pytest.raises(UsageError, match="unknown device 'gpu'"):
        predict(run, ["x"], places, How(device="gpu"))
    with pytest.raises(UsageError, match="--batch 0"):
        predict(run, ["x"], places, How(batch=0))
    with pytest.raises(UsageError, match="no image to predict: the image x does not exist"):
        predict(run, ["x"], places)
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="--device cpu"):
            best_device("cuda")


@pytest.mark.gpu
def test_on_a_gpu_the_answers_are_the_same(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 24, 3), dtype=np.uint8)
    host = a_model()
    device = Trained(host.name, Brightest().cuda(), CLASSES, (8, 8), host.mean, host.std, best_device("auto"))
    there = prepared(image, device)
    assert there.is_cuda
    expected = probabilities(host, prepared(image, host))
    assert torch.allclose(probabilities(device, there), expected, atol=1e-3)
