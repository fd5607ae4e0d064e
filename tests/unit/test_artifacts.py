"""What a run shows of its data: photographs with their boxes."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from laptime import worker
from laptime.artifacts import _BOX_CELL, _COLOURS, write_summary
from laptime.data.boxes.tensors import Kept, open_boxes
from laptime.data.fetch import fetch

# Of a photograph of 120x60 in a cell twice as wide.
BOX, IN_CELL = (30, 10, 90, 50), (60, 20, 180, 100)


@pytest.fixture
def data(tmp_path):
    """Three grey photographs, the odd one without a box; two train."""
    root = tmp_path / "photographs"
    root.mkdir()
    lines = ["filename,class,xmin,ymin,xmax,ymax"]
    for number in range(3):
        Image.new("RGB", (120, 60), (90, 90, 90)).save(root / f"{number}.png")
        lines.append(f"{number}.png,{'zebra,' + ','.join(map(str, BOX)) if number != 1 else ',,,,'}")
    (root / "boxes.csv").write_text("\n".join(lines) + "\n")
    return open_boxes(fetch("detection", str(root), tmp_path / "home"))


def test_photographs_are_shown_with_their_boxes(data, recipe, tmp_path):
    assert [len(data.train.dataset[i].boxes) for i in range(2)] in ([1, 0], [0, 1])
    worker._write_artifacts(replace(recipe, data=data), data, tmp_path)
    sheet = np.asarray(Image.open(tmp_path / "samples.png"))
    assert sheet.shape == (_BOX_CELL + 8, 2 * _BOX_CELL + 12, 3)
    cells = [sheet[4 : 4 + _BOX_CELL, left : left + _BOX_CELL] for left in (4, 8 + _BOX_CELL)]
    for cell in cells:
        assert (cell[122:] == 255).all()
        assert (cell[:18] == 90).all()
    drawn = [cell for cell in cells if (cell[:120] != 90).any()]
    assert len(drawn) == 1
    colour = ImageColor.getrgb(_COLOURS[0])
    left, top, right, bottom = IN_CELL
    for row, column in ((top, 120), (bottom, 120), (60, left), (60, right)):
        assert tuple(drawn[0][row, column]) == colour
    assert tuple(drawn[0][80, 120]) == (90, 90, 90)


def test_they_are_shown_as_they_were_opened_whatever_becomes_of_them(data, recipe, tmp_path):
    black = Kept([item._replace(image=item.image * 0) for item in (data.train.dataset[0], data.train.dataset[1])])
    changed = data.changed(lambda _: black, test=False)
    for folder, some in (("plain", data), ("changed", changed)):
        (tmp_path / folder).mkdir()
        worker._write_artifacts(replace(recipe, data=some), data, tmp_path / folder)
    shown = [(tmp_path / folder / "samples.png").read_bytes() for folder in ("plain", "changed")]
    assert shown[0] == shown[1]


def test_a_long_layer_s_name_stands_apart_from_its_module_and_a_small_model_has_a_size(recipe, tmp_path):
    name = "backbone_body_layer1_0_downsample_0"
    model = torch.nn.Sequential(OrderedDict({name: torch.nn.Linear(3, 2)}))
    write_summary(replace(recipe, model=model), tmp_path / "summary.txt")
    head, weight, bias, _, size, *_ = (tmp_path / "summary.txt").read_text().splitlines()
    assert weight.split() == [name, "Linear", "2", "x", "3", "6"]
    assert len(head) == len(weight) == len(bias)
    assert size == "8 parameters, 32 bytes in fp32"
