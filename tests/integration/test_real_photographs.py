"""Real photographs with boxes: the archive as it was published, through the door that a user's own data comes by."""

from __future__ import annotations

import csv
import io
import os
import tarfile
from pathlib import Path

import pytest
import torch

from laptime.data.boxes.tensors import open_boxes, rows
from laptime.data.fetch import fetch


@pytest.fixture
def archive() -> str:
    path = os.environ.get("LAPTIME_TEST_RACCOON")
    if not path:
        pytest.skip("LAPTIME_TEST_RACCOON does not name the archive of the raccoon data set")
    return path


def _lines(archive: str) -> list[dict[str, str]]:
    with tarfile.open(archive) as tar:
        table = next(m for m in tar.getmembers() if m.name.endswith("raccoon_labels.csv"))
        held = tar.extractfile(table)
        assert held is not None
        return list(csv.DictReader(io.StringIO(held.read().decode())))


def test_all_photographs_come_with_their_boxes(archive: str, tmp_path: Path) -> None:
    lines = _lines(archive)
    found = fetch("detection", archive, tmp_path)
    assert (found.train_count, found.test_count) == (160, 40)
    assert found.classes == ("raccoon",)
    assert len(lines) == 217
    data = open_boxes(found)
    items = [split.dataset[i] for split in (data.train, data.test) for i in range(len(split))]
    sides = sorted(tuple(box) for item in items for box in item.boxes.tolist())
    said = [tuple(float(line[name]) for name in ("xmin", "ymin", "xmax", "ymax")) for line in lines]
    assert sides == sorted(said)
    sizes = {(int(line["height"]), int(line["width"])) for line in lines}
    assert {tuple(item.image.shape[1:]) for item in items} == sizes
    batch = data.train.batch([0, 1, 2])
    assert all(0 <= item.image.min() <= item.image.max() <= 1 for item in rows(batch))
    assert all(torch.equal(item.labels, torch.ones(len(item.boxes), dtype=torch.int64)) for item in rows(batch))
