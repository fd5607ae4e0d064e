"""Two ranks profile a net whose backward pass sleeps on the second, for test_slow_backward.py.

python slow_backward.py RESULT.json FOLDER, with the environment of torch's launcher.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from tests.unit.parallel.two_ranks import Tiny, recipe_for

from laptime.engine.build import build
from laptime.measure.marks import StepMarks
from laptime.profiling.segment import Asked, Segment
from laptime.spec import ProfileSchedule
from laptime.world import opened

# Far longer than what others on the machine take of a step.
SLEEP_S = 0.25


class Sleeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


def main(result: Path, folder: Path) -> None:
    with opened("cpu") as world:
        recipe = recipe_for(Tiny(), world, "ddp:batchnorm=local")
        parts = build(recipe, StepMarks())
        forward = parts.forward

        def sleeping(model, batch):
            output = forward(model, batch)
            return replace(output, loss=Sleeping.apply(output.loss, 0.0 if world.first else SLEEP_S))

        parts.forward = sleeping
        segment = Segment(parts, recipe, Asked(ProfileSchedule(0, 1, 3, 1), 0, None, folder))
        record = segment.run()
        if world.first:
            result.write_text(record.model_dump_json(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
