"""Photographs through a trained detector: what it finds on each, in the photograph's own pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from laptime.catalogue import options_of
from laptime.data.boxes.fetch import split_asked
from laptime.data.boxes.store import read_box_meta
from laptime.data.decode import Images
from laptime.errors import DataError
from laptime.optimizations.boxes import fix_shape
from laptime.predict.logged_model import load_model
from laptime.records import Found
from laptime.spec import RunSpec
from laptime.workloads.detection import resize_to


@dataclass(frozen=True)
class Detector:
    """A detector and the names of what it finds.

    Attributes:
        module: on its device, takes a list of images [3, H, W] from 0 to 1, each of its own size.
        classes: by label, from 1.
    """

    name: str
    module: nn.Module
    classes: tuple[str, ...]
    device: torch.device


def load_detector(folder: Path, spec: RunSpec, device: torch.device) -> Detector:
    """The detector of a run's folder, which brings photographs to the size that it was trained on.

    Raises:
        DataError: its state dict can't be used, or nothing says that size.
    """
    module = load_model(folder / "model.pt", spec)
    if not all(bool(values.isfinite().all()) for values in module.parameters()):
        raise DataError(f"the weights in {folder / 'model.pt'} are no numbers, they have diverged: train it again.")
    side = _side(spec)
    if side is not None:
        resize_to(module, side)
    for chosen in spec.optimizations:
        if chosen.name == "fixed-shapes":
            fix_shape(module, float(options_of(chosen)["aspect"]))
    return Detector(f"{spec.workload} {spec.variant}", module.to(device), spec.data.classes, device)


def _side(spec: RunSpec) -> int | None:
    """What the shorter side of an image became, None for the catalogue's: by the store, else by what was asked for."""
    try:
        return read_box_meta(Path(spec.data.path)).side
    except DataError:
        asked = split_asked(spec.data.asked)
    if Path(asked.place).name == spec.data.digest:
        raise DataError(
            f"the data store {spec.data.path} is gone, so nothing says how large its photographs became: bring it back."
        )
    return asked.side


def _longest(module: nn.Module) -> int | None:
    """The pixels that a photograph's longer side has at most; None where all photographs become one size."""
    transform: Any = getattr(module, "transform", None)
    if transform is None or getattr(transform, "fixed_size", None) is not None:
        return None
    return int(transform.max_size)


def boxes_on(image: Images, detector: Detector, least: float) -> tuple[Found, ...]:
    """What is found on a photograph, the surest first; waits for the device.

    Args:
        image: uint8 [H, W, 3].
        detector: takes one photograph at a time, since what it finds must not depend on those beside it.
        least: score below which nothing is told; the net itself tells nothing below 0.05, and 100 boxes at most.

    Raises:
        DataError: so narrow a photograph that nothing is left of it at the size that the detector takes.
    """
    height, width = image.shape[:2]
    longest = _longest(detector.module)
    if longest is not None and min(height, width) * longest < max(height, width):
        raise DataError(
            f"it is {width}x{height} pixels, of which no row is left where its longer side becomes {longest}: cut it."
        )
    pixels = torch.tensor(image).to(detector.device).permute(2, 0, 1).contiguous().to(torch.float32).div_(255)
    with torch.inference_mode():
        (found,) = detector.module([pixels])
    told = zip(found["boxes"].tolist(), found["labels"].tolist(), found["scores"].tolist(), strict=True)
    return tuple(
        Found(name=detector.classes[label - 1], score=score, xmin=left, ymin=top, xmax=right, ymax=bottom)
        for (left, top, right, bottom), label, score in told
        if score >= least
    )
