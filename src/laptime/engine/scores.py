"""How good a detector is: mean average precision as COCO defines it, by pycocotools (extra `detection`).

Boxes of padded or resized images are compared with their own in the same pixels, so the scale plays no part.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from laptime.data.boxes.tensors import BoxItem


class Scorer:
    """Collects what was found and what was there, image by image."""

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = classes
        self.images: list[dict[str, Any]] = []
        self.truth: list[dict[str, Any]] = []
        self.found: list[dict[str, Any]] = []

    def add(self, found: Sequence[Mapping[str, Tensor]], items: Sequence[BoxItem]) -> None:
        """Takes a batch; waits for the device."""
        for detections, item in zip(found, items, strict=True):
            number = len(self.images) + 1
            self.images.append({"id": number})
            for sides, label in zip(_corners(item.boxes), item.labels.tolist(), strict=True):
                self.truth.append({**_entry(number, sides, label), "id": len(self.truth) + 1, "iscrowd": 0})
            scores = detections["scores"].tolist()
            labels = detections["labels"].tolist()
            for sides, label, score in zip(_corners(detections["boxes"]), labels, scores, strict=True):
                self.found.append({**_entry(number, sides, label), "score": score})

    def scores(self) -> dict[str, float]:
        """`test_map50` and `test_map`, from 0 to 1; nothing where no image had a box."""
        if not self.truth:
            return {}
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        if not self.found:
            return {"test_map50": 0.0, "test_map": 0.0}
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress and a table
            known = COCO()
            known.dataset = {
                "info": {},
                "images": self.images,
                "annotations": self.truth,
                "categories": [{"id": n, "name": name} for n, name in enumerate(self.classes, start=1)],
            }
            known.createIndex()
            judged = COCOeval(known, known.loadRes(self.found), "bbox")
            # Boxes of every size: small, medium and large ones alone, which nobody is told of, take four times as long.
            judged.params.areaRng, judged.params.areaRngLbl = judged.params.areaRng[:1], judged.params.areaRngLbl[:1]
            judged.evaluate()
            judged.accumulate()
            judged.summarize()
        # By COCO's order: the mean over overlaps, then at 0.5; -1 where nothing could be judged.
        return {"test_map50": max(0.0, float(judged.stats[1])), "test_map": max(0.0, float(judged.stats[0]))}


def _corners(boxes: Tensor) -> list[list[float]]:
    found: list[list[float]] = boxes.double().tolist()
    return found


def _entry(image: int, sides: Sequence[float], label: int) -> dict[str, Any]:
    left, top, right, bottom = sides
    width, height = right - left, bottom - top
    return {"image_id": image, "category_id": label, "bbox": [left, top, width, height], "area": width * height}
