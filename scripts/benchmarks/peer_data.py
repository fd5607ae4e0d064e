"""What all sides of `scripts/bench peers` train: laptime's spec, and a store of the same images for scripts."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from laptime.catalogue import find_workload
from laptime.data.boxes.store import IMAGES, TABLE, read_box_meta
from laptime.data.boxes.tensors import ReadAgain, open_boxes
from laptime.data.meta import META, read_meta
from laptime.data.tensors import limited
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.request import make_request, make_spec
from laptime.places import find_places
from laptime.records import write_json
from laptime.spec import RunSpec
from laptime.values.draws import seed_all
from laptime.variants import resolve
from laptime.workloads import find


@dataclass(frozen=True)
class Size:
    """How much of a workload is trained where no option says.

    Attributes:
        batch: images of a step; the catalogue's would be more than a few images.
        test_images: evaluation is outside of the time on all sides, and no part of this.
    """

    images: int
    epochs: int
    batch: int
    test_images: int = 10


SIZES = {
    "cifar": Size(images=1000, epochs=2, batch=32),
    "eurosat": Size(images=32, epochs=2, batch=16),
    "detection": Size(images=4, epochs=2, batch=1, test_images=2),
}


def settled(asked: argparse.Namespace, parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options with the workload's own sizes where none was given; ends with a usage error where one is off."""
    size = SIZES[asked.workload]
    for name in ("images", "epochs", "batch"):
        given = getattr(asked, name)
        setattr(asked, name, getattr(size, name) if given is None else given)
        if getattr(asked, name) < 1:
            parser.error(f"--{name} {getattr(asked, name)} is too few: give at least 1")
    if asked.rounds < 1:
        parser.error(f"--rounds {asked.rounds} is too few: give at least 1")
    if asked.batch > 1 and asked.images % asked.batch == 1:
        parser.error(
            f"--images {asked.images} leaves a last batch of one, which laptime joins with the one before it and "
            f"scripts do not: give {asked.images - 1}"
        )
    return asked


def spec_for(asked: argparse.Namespace, epochs: int) -> RunSpec:
    """What laptime trains: the baseline in the loop's own process, unless workers were asked for."""
    data = fetch_data(asked.workload, asked.data, find_places(), in_words(lambda text: sys.stderr.write(f"{text}\n")))
    if asked.workload != "detection" and read_meta(Path(data.path)).bands:
        sys.exit(f"{asked.data} has bands, and the scripts read pictures: give --data a folder of them.")
    test = min(SIZES[asked.workload].test_images, data.test_count)
    request = make_request(
        workload=asked.workload,
        preset="quick",
        device=asked.device,
        epochs=epochs,
        limit_train=asked.images,
        limit_test=test,
    )
    baseline = f"{asked.device}-baseline"
    if asked.workers != find_workload(asked.workload).workers:
        baseline += f"+workers:count={asked.workers}"
    spec = make_spec(request, resolve(baseline), data, 1)  # only repeat 0 is checked and saved
    return spec.model_copy(update={"batch_size": asked.batch})


def cut_store(spec: RunSpec, folder: Path) -> Path:
    """A store of the images that laptime keeps under the spec's limits, for scripts that take what is there."""
    folder.mkdir()
    cut = _cut_boxes if find_workload(spec.workload).boxes else _cut_images
    cut(spec, folder)
    return folder


def _cut_images(spec: RunSpec, folder: Path) -> None:
    source = Path(spec.data.path)
    shutil.copy(source / META, folder)
    for split, count in (("train", spec.limit_train), ("test", spec.limit_test)):
        labels = np.load(source / f"{split}_labels.npy")
        chosen = slice(None) if count is None or count >= len(labels) else limited(labels, count)
        np.save(folder / f"{split}_labels.npy", labels[chosen])
        np.save(folder / f"{split}_images.npy", np.load(source / f"{split}_images.npy", mmap_mode="r")[chosen])


def _cut_boxes(spec: RunSpec, folder: Path) -> None:
    """The CSV stays whole: laptime's baseline reads all of it for each item, too."""
    source, data = Path(spec.data.path), open_boxes(spec.data, spec.limit_train, spec.limit_test)
    shutil.copy(source / TABLE, folder)
    (folder / IMAGES).symlink_to(source / IMAGES)
    side = read_box_meta(source).side or find_workload(spec.workload).image_size
    splits = {"train": data.train.dataset, "test": data.test.dataset}
    names = {name: list(split.names) for name, split in splits.items() if isinstance(split, ReadAgain)}
    write_json(folder / META, {**names, "classes": list(data.classes), "side": side})
    seed_all(spec.seed)
    torch.save(find(spec.workload).make_model(len(data.classes), "none").state_dict(), folder / "weights.pt")
