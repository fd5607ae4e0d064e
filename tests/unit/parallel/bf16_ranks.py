"""One rank of two for test_bf16_ranks.py, which trains in fp32 and in bf16; rank 0 writes the losses by epoch as JSON.

python bf16_ranks.py RESULT.json, with the environment of torch's launcher.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.unit.parallel.two_ranks import Tiny, recipe_for

from laptime.catalogue import parse_optimization
from laptime.engine.build import build
from laptime.engine.evaluate import totals
from laptime.engine.loop import train_epoch
from laptime.engine.reset import reset, snapshot
from laptime.optimizations import apply
from laptime.workloads.base import classify
from laptime.world import World, opened

EPOCHS = 4
TUNED = "ddp:tuned=true:bucket_mb=1"
TRAININGS = {
    "fp32": (TUNED,),
    "bf16": ("bf16", TUNED),
    "bf16, gradients too": ("bf16", f"{TUNED}:reduce=bf16"),
}


def losses(world: World, *chosen: str) -> list[float | None]:
    """The mean training loss of each epoch."""
    double = recipe_for(Tiny(), world)
    single = replace(double, model=double.model.float(), forward=classify, epochs=EPOCHS)
    recipe = apply(single, tuple(map(parse_optimization, chosen)))
    parts = build(recipe, mark=lambda _: None)
    reset(parts, recipe, snapshot(parts))
    return [totals(list(train_epoch(parts, epoch)), world)[0] for epoch in range(EPOCHS)]


def main(result: Path) -> None:
    with opened("cpu") as world:
        found = {name: losses(world, *chosen) for name, chosen in TRAININGS.items()}
        if world.first:
            result.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
