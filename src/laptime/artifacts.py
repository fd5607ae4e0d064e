"""What a run shows of itself: its progress, sample images, a summary of the model, the trained weights."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torchvision.utils import draw_bounding_boxes, save_image

from laptime.data.boxes.tensors import BoxData, BoxItem
from laptime.data.tensors import ImageData
from laptime.engine.plain import plain_state
from laptime.errors import in_digits, shorten
from laptime.optimizations.base import Recipe, permutation
from laptime.records import EpochRecord

_EVERY_S = 0.5
_COLUMNS, _ROWS, _CELL, _CAPTION = 8, 4, 96, 16
_BOX_COLUMNS, _BOX_ROWS, _BOX_CELL = 4, 3, 240
# Of the classes in turn: light and dark ones, apart for those who see no red or no green (Okabe and Ito 2008).
_COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")


class ProgressFile:
    """Appends progress as JSON lines, at most twice a second within an epoch, so that it costs an epoch nothing."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)  # a full disk is seen by the write, and by no later close
        self._next = 0.0

    def step(self, epoch: int, done: int, steps: int) -> None:
        """Notes a step when the time has come."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_S
            self.write({"event": "step", "epoch": epoch, "done": done, "steps": steps})

    def write(self, event: dict[str, object]) -> None:
        """Writes one event."""
        self._file.write(json.dumps(event).encode() + b"\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def epoch_line(epoch: EpochRecord, timed: bool) -> str:
    """One line about an epoch, its times only where they may be shown already."""
    time_s = f"{_digits(epoch.epoch_s)} s, {in_digits(epoch.samples_per_s or 0)} samples/s, " if timed else ""
    judged = f"; evaluated in {_digits(epoch.evaluate_s)} s" if timed and epoch.evaluate_s is not None else ""
    train = [f"train loss {epoch.train_loss:.3f}"]
    if epoch.test_map50 is not None:
        strict = "" if epoch.test_map is None else f" (0.5:0.95: {epoch.test_map:.3f})"
        test = [f"mAP@0.5 {epoch.test_map50:.3f}{strict}"]
    elif epoch.test_score is not None:
        test = [f"test score {epoch.test_score:.3f}"]
    elif epoch.test_error is not None:
        test = [f"test error {epoch.test_error:.4g}"]
    elif epoch.test_accuracy is None or epoch.train_accuracy is None:
        test = [] if epoch.test_loss is None else [f"test loss {epoch.test_loss:.3f}"]
    else:
        test = [f"train accuracy {epoch.train_accuracy:.3f}", f"test accuracy {epoch.test_accuracy:.3f}"]
    return f"epoch {epoch.index}: {time_s}{', '.join(train + test)}{judged}"


def times_line(epochs: Sequence[EpochRecord]) -> str:
    """The seconds of all epochs, and of the evaluations after them, which are no part of an epoch's."""
    judged = [f"{_digits(e.evaluate_s)} s" for e in epochs if e.evaluate_s is not None]
    beside = f"; evaluations {', '.join(judged)}" if judged else ""
    return f"epochs took {', '.join(f'{_digits(e.epoch_s)} s' for e in epochs)}{beside}"


def _digits(seconds: float) -> str:
    """Hundredths, and of what is shorter three digits that mean something."""
    return f"{seconds:.2f}" if seconds >= 1 else f"{seconds:.3g}"


def write_samples(data: ImageData, path: Path) -> None:
    """Draws a grid of training images, the same for the same data, each with its class's name below."""
    sheet = Image.new("RGB", (_COLUMNS * _CELL, _ROWS * (_CELL + _CAPTION)), "white")
    draw = ImageDraw.Draw(sheet)
    chosen = permutation(len(data.train.labels), 0, 0)[: _COLUMNS * _ROWS]
    for place, index in enumerate(chosen.tolist()):
        row, column = divmod(place, _COLUMNS)
        left, top = column * _CELL, row * (_CELL + _CAPTION)
        pixels = in_colours(data.train.images[index].numpy(), data.scale)
        image = Image.fromarray(pixels).resize((_CELL - 4, _CELL - 4), Image.Resampling.NEAREST)
        sheet.paste(image, (left + 2, top + 2))
        draw.text(
            (left + 4, top + _CELL - 1),
            shorten(data.classes[int(data.train.labels[index])], 14),
            fill="black",
        )
    sheet.save(path)


def write_boxes(data: BoxData, path: Path) -> None:
    """Draws a grid of training photographs, the same for the same data, each with its boxes and their classes."""
    chosen = permutation(len(data.train), 0, 0)[: _BOX_COLUMNS * _BOX_ROWS]
    cells = [_boxed(data.train.dataset[index], data.classes) for index in chosen.tolist()]
    save_image(cells, path, nrow=_BOX_COLUMNS, padding=4, pad_value=1.0)


def _boxed(item: BoxItem, classes: Sequence[str]) -> Tensor:
    """A photograph as large as a cell holds it, with its boxes, float32 [3, cell, cell]."""
    scale = _BOX_CELL / max(item.image.shape[1:])
    height, width = (max(1, round(side * scale)) for side in item.image.shape[1:])
    image = F.interpolate(item.image[None], (height, width), mode="bilinear", antialias=True)[0].clamp(0, 1)
    if len(item.boxes):
        labels = [label - 1 for label in item.labels.tolist()]
        names, colours = [shorten(classes[n], 20) for n in labels], [_COLOURS[n % len(_COLOURS)] for n in labels]
        image = draw_bounding_boxes(image, item.boxes * scale, names, colours, width=2)
    return F.pad(image, (0, _BOX_CELL - width, 0, _BOX_CELL - height), value=1.0)


def in_colours(image: NDArray[Any], scale: int) -> NDArray[np.uint8]:
    """Stored pixels [H, W, C] as a viewer shows them, uint8 [H, W, 3]: the first three bands, or the first as grey."""
    shown = image if image.shape[2] >= 3 else image[:, :, :1].repeat(3, axis=2)
    return (shown[:, :, :3].astype(np.float32) * (255 / scale)).round().astype(np.uint8)


def write_summary(recipe: Recipe, path: Path) -> None:
    """Writes the layers that hold parameters, with their shapes, counts and the model's size."""
    rows = [
        (name, type(module).__name__, " x ".join(map(str, p.shape)), p.numel())
        for name, module in recipe.model.named_modules()
        for p in module.parameters(recurse=False)
    ]
    total = sum(r[3] for r in rows)
    head = ("layer", "module", "shape")
    widths = [max(map(len, column)) + 2 for column in zip(head, *(row[:3] for row in rows), strict=True)]
    cells = [(*head, "parameters"), *((*row[:3], f"{row[3]:,}") for row in rows)]
    lines = ["".join(map(str.ljust, row, widths)) + f"{row[3]:>12}" for row in cells]
    lines += ["", f"{total:,} parameters, {_size(4 * total)} in fp32", *recipe.notes]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _size(count: int) -> str:
    """Bytes in the largest unit of which there is one."""
    small = f"{count / 2**10:.1f} KiB" if count >= 2**10 else f"{count} bytes"
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else small


def write_model(model: nn.Module, path: Path) -> None:
    """Saves the weights as a state dict of the plain architecture, beside and renamed."""
    part = path.with_suffix(".part")
    try:
        torch.save(plain_state(model), part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
