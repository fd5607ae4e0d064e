"""The batch and the loader processes of a workload's baseline for which this machine has room.

python -m laptime.preflight.fitting SPEC.json RESULT.json

SPEC is the RunSpec of a baseline; data that has no place is stood in for, by its count.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from laptime.catalogue import find_workload
from laptime.data.tensors import ImageData, Split
from laptime.engine.build import make_recipe, open_data
from laptime.engine.noise import random_boxes, random_images
from laptime.errors import LaptimeError
from laptime.host.processes import leave
from laptime.optimizations.base import AnyData
from laptime.records import write_json
from laptime.spec import RunSpec


def fit(spec: RunSpec) -> dict[str, object]:
    """What a baseline's process would settle on, and why."""
    data = open_data(spec) if spec.data.path else _stand_in(spec)
    recipe = make_recipe(spec, data, ())
    # Data of fewer images than a batch say nothing of room.
    size = spec.batch_size if recipe.batch_size == len(data.train) else recipe.batch_size
    return {"batch_size": size, "workers": recipe.loading.workers, "notes": recipe.notes}


def _stand_in(spec: RunSpec) -> AnyData:
    entry = find_workload(spec.workload)
    if entry.boxes:
        return random_boxes(2)
    one = random_images(entry.image_size, 1)
    return replace(one, train=_repeated(one, spec.data.train_count))


def _repeated(data: ImageData, count: int) -> Split:
    """The first image many times over, without the memory for it."""
    images, labels = data.train.images, data.train.labels
    return Split(images.expand(count, *images.shape[1:]), labels.expand(count))


def main(arguments: list[str]) -> int:
    """The command."""
    asked, result = map(Path, arguments)
    try:
        write_json(result, fit(RunSpec.model_validate_json(asked.read_text(encoding="utf-8"))))
    except LaptimeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
