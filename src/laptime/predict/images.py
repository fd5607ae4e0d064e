"""Images through a trained model: `python -m laptime.predict.images REQUEST.json ANSWER.json`.

The request holds `folder` (with `model.pt` and `spec.json`) or `run_id` (of MLflow; the store is MLFLOW_TRACKING_URI),
`files`, `device` (auto, cpu or cuda), `batch`, `score` (the least of a box) and `draw` (a folder; empty for none). The
answer is a `laptime.predictions/1`, or `error`, `kind` and `exit_code`. A process of its own, since whoever asks never
imports torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from laptime.catalogue import find_workload
from laptime.data.decode import Images, read_image
from laptime.engine.build import find_device
from laptime.errors import DataError, LaptimeError, UsageError, refusal, shorten
from laptime.host.processes import leave
from laptime.host.scratch import scratch
from laptime.predict.boxes import Detector, boxes_on, load_detector
from laptime.predict.drawing import Drawings
from laptime.predict.logged_model import describe, load_model
from laptime.records import Guess, Prediction, Predictions, Refused, write_json
from laptime.spec import read_spec

_GUESSES = 3


@dataclass(frozen=True)
class Trained:
    """A model and what its inputs are made with.

    Attributes:
        module: on its device, takes images [B, C, H, W] and gives logits [B, classes].
        size: H and W, pixels.
        mean, std: per channel, of images scaled to 0..1.
        scale: the pixel value that stands for 1.
        bands: those of multi-spectral images; none for RGB.
    """

    name: str
    module: nn.Module
    classes: tuple[str, ...]
    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device
    scale: int = 255
    bands: tuple[int, ...] = ()


def main(arguments: list[str]) -> int:
    """Answers one request; returns the exit code."""
    request, answer = json.loads(Path(arguments[0]).read_text(encoding="utf-8")), Path(arguments[1])
    try:
        write_json(answer, predict(request))
    except LaptimeError as error:
        write_json(answer, refusal(error))
        return error.exit_code
    return 0


def predict(request: Mapping[str, Any]) -> Predictions:
    """Loads the model and runs the images through it: in batches, of a detector one by one.

    Raises:
        UsageError: the device does not exist here, or the boxes of a classifier are to be drawn.
        DataError: the model can't be had, or the folder of drawings can't be written.
    """
    device = best_device(request["device"])
    trained = load(request, device)
    found: list[Prediction] = []
    refused: list[Refused] = []
    files = list(request["files"])
    if isinstance(trained, Detector):
        _detect(request, trained, (found, refused))
    elif request.get("draw"):
        raise UsageError(f"--draw is for the boxes of a detector, and {trained.name} says classes alone: leave it out.")
    else:
        for start in range(0, len(files), request["batch"]):
            _classify(files[start : start + request["batch"]], trained, (found, refused))
    return Predictions(
        model=trained.name, device=_device_name(device), predictions=tuple(found), refused=tuple(refused)
    )


def _detect(request: Mapping[str, Any], trained: Detector, told: tuple[list[Prediction], list[Refused]]) -> None:
    drawings = Drawings(Path(request["draw"]), trained.classes) if request.get("draw") else None
    for name, image in _decoded(request["files"], read_image, told[1]):
        try:
            boxes = boxes_on(image, trained, request["score"])
        except DataError as error:
            told[1].append(Refused(file=name, reason=f"the image {name} can't be searched: {error}"))
            continue
        drawn = str(drawings.add(name, image, boxes)) if drawings else None
        told[0].append(Prediction(file=name, boxes=boxes, drawn=drawn))


def _classify(files: Sequence[str], trained: Trained, told: tuple[list[Prediction], list[Refused]]) -> None:
    names, images = [], []
    for name, image in _decoded(files, partial(_read, trained), told[1]):
        names.append(name)
        images.append(prepared(image, trained))
    if images:
        _answer(names, probabilities(trained, torch.cat(images)), trained, told)


def best_device(asked: str) -> torch.device:
    """The device that is asked for; `auto` takes a GPU where there is one."""
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return find_device(asked)


def load(request: Mapping[str, Any], device: torch.device) -> Trained | Detector:
    """The model of a run folder or of an MLflow run, in evaluation mode on a device.

    Raises:
        DataError: it can't be had, or nothing says how images become its inputs.
    """
    if request.get("folder"):
        return _from_folder(Path(request["folder"]), device)
    # MLflow takes seconds to import, which a run folder does not need.
    from laptime.tracking.mlflow import load_logged_model

    with scratch("model") as folder:
        module, known = load_logged_model(request["run_id"], os.environ["MLFLOW_TRACKING_URI"], folder)
        return _from_folder(folder, device) if module is None else _trained(module, known, device)


def _from_folder(folder: Path, device: torch.device) -> Trained | Detector:
    spec = read_spec(folder / "spec.json")
    if spec.data.own is not None:
        raise UsageError(f"{spec.workload} is your own workload, and only images are predicted: load its model.pt.")
    if find_workload(spec.workload).boxes:
        return load_detector(folder, spec, device)
    return _trained(load_model(folder / "model.pt", spec), describe(spec), device)


def _trained(module: nn.Module, known: Mapping[str, Any], device: torch.device) -> Trained:
    try:
        classes = tuple(str(name) for name in known["classes"])
        size = _height_and_width(known["image_size"])
        workload, variant = known["workload"], known["variant"]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the logged model does not say what a prediction needs ({shorten(str(error))}): give a model of laptime's."
        ) from error
    if "mean" not in known or "std" not in known:
        raise DataError(
            "the model's data store is gone, so nothing says how images were normalized: bring the data back with "
            f"laptime data fetch {workload}, or give the id of its MLflow run."
        )
    mean, std = (tuple(float(v) for v in known[name]) for name in ("mean", "std"))
    # Models that were logged before there were bands say neither.
    scale, bands = int(known.get("scale", 255)), tuple(int(band) for band in known.get("bands", ()))
    return Trained(f"{workload} {variant}", module.to(device), classes, size, mean, std, device, scale, bands)


def _height_and_width(known: Any) -> tuple[int, int]:
    """Models that were logged when images had to be square say one number."""
    height, width = known if isinstance(known, list | tuple) else (known, known)
    return int(height), int(width)


def _decoded(
    files: Sequence[str], read: Callable[[Path], Images], refused: list[Refused]
) -> Iterator[tuple[str, Images]]:
    """The images that can be read; the others are refused, each with its reason."""
    for name in files:
        try:
            image = read(Path(name))
        except DataError as error:
            refused.append(Refused(file=name, reason=str(error)))
        else:
            yield name, image


def _read(trained: Trained, path: Path) -> Images:
    """Measured values are not resized, here as in training: between two pixels nothing was measured."""
    try:
        image = read_image(path, trained.bands)
    except DataError as error:
        if not trained.bands:
            raise
        # Whoever stores data may choose other bands; the model's are settled.
        what, bands = str(error).rpartition(": ")[0], ",".join(map(str, trained.bands))
        raise DataError(f"{what}: the model was trained on bands {bands}, so give a GeoTIFF that has them.") from error
    if trained.bands and image.shape[:2] != trained.size:
        height, width = trained.size
        raise DataError(
            f"the image {path} is {image.shape[1]}x{image.shape[0]} and the model was trained on bands of "
            f"{width}x{height}: resample it."
        )
    return image


def prepared(image: Images, trained: Trained) -> Tensor:
    """An input of the model, made on its device.

    The pixels go there as they are, a quarter of what floats would be. Resized as training images are when they are
    stored: without keeping the ratio of the sides, bicubic over all pixels that are covered, and rounded to integers.

    Args:
        image: uint8 [H, W, 3] or int16 [H, W, bands].
        trained: says size, mean and deviation.

    Returns:
        Normalized, float32 [1, C, H, W].
    """
    pixels = torch.tensor(image).to(trained.device).permute(2, 0, 1)[None].float()
    if pixels.shape[-2:] != trained.size:
        pixels = (
            functional.interpolate(pixels, trained.size, mode="bicubic", antialias=True).round().clamp(0, trained.scale)
        )
    mean, std = (torch.tensor(v, device=trained.device)[:, None, None] for v in (trained.mean, trained.std))
    return ((pixels / trained.scale - mean) / std).contiguous()


def probabilities(trained: Trained, inputs: Tensor) -> Tensor:
    """Of each class [B, classes], on the host; waits for the device.

    A single image goes through twice: an exported program holds for two and more.

    Raises:
        DataError: the model's outputs are not the classes that it is said to know.
    """
    count = len(inputs)
    with torch.inference_mode():
        logits: Tensor = trained.module(inputs if count > 1 else inputs.repeat(2, 1, 1, 1))[:count]
    if logits.shape != (count, len(trained.classes)):
        raise DataError(
            f"the model of {trained.name} gives {tuple(logits.shape[1:])} values an image and knows "
            f"{len(trained.classes)} classes: train it again."
        )
    return logits.float().softmax(dim=1).cpu()


def _answer(
    names: Sequence[str], shares: Tensor, trained: Trained, told: tuple[list[Prediction], list[Refused]]
) -> None:
    found, refused = told
    values, places = shares.topk(min(_GUESSES, shares.shape[1]), dim=1)
    for name, likely, at in zip(names, values.tolist(), places.tolist(), strict=True):
        if not all(0 <= v <= 1 for v in likely):
            reason = f"the model's answer to {name} is no number: its weights have diverged, so train it again."
            refused.append(Refused(file=name, reason=reason))
            continue
        guesses = tuple(Guess(name=trained.classes[i], probability=v) for i, v in zip(at, likely, strict=True))
        found.append(Prediction(file=name, guesses=guesses))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
