"""One rank of two that opens LightningModules, evaluates a workload, draws by weights, and keeps what it has seen.

python rank_of_own.py RESULT.json WORKLOAD.py WEIGHTED.py KEEPING.py R:LIT.py...

in the environment of a launcher; R ranks stand on a machine.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.unit.conftest import make_spec

from laptime.data.own.opened import open_own
from laptime.engine.build import build, make_recipe
from laptime.engine.evaluate import evaluate
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.spec import OptimizationSpec
from laptime.world import World, opened


def found_in(file: Path, world: World) -> tuple[list[str], ...]:
    data = open_own(file, "Lit")
    if world.first:  # as for a comparison's baseline, which the first rank takes alone
        data.workload.model()
    return world.collected(sys.modules[file.stem].CALLS)


def scored(file: Path, world: World) -> tuple[dict[str, float | None], ...]:
    data = open_own(file, "Workload")
    chosen = (OptimizationSpec(name="flat-reduce"),)
    recipe = make_recipe(make_spec(optimizations=chosen, batch_size=16), data, chosen, world)
    return world.collected(dict(evaluate(build(recipe, lambda _: None), recipe, data.test).scores))


def drawn_in(file: Path, world: World) -> dict[str, tuple[list[int], ...]]:
    """The numbers of the samples that each rank trains on in an epoch, by the loader."""
    seen = {}
    for loader in ("resident", "no-reads"):
        chosen = tuple(OptimizationSpec(name=name) for name in ("flat-reduce", loader))
        data = open_own(file, "Workload")
        recipe = make_recipe(make_spec(optimizations=chosen, batch_size=16), data, chosen, world)
        mine = [int(i) for batch in build(recipe, lambda _: None).loader.epoch(1) for i in batch.inputs[1]]
        seen[loader] = world.collected(mine)
    return seen


def told_of(file: Path, world: World) -> tuple[str, ...]:
    """What a run says behind its warm-up."""
    data, chosen = open_own(file, "Workload"), (OptimizationSpec(name="flat-reduce"),)
    recipe = make_recipe(make_spec(optimizations=chosen, batch_size=16), data, chosen, world)
    marks = StepMarks()
    session = Session(build(recipe, marks), recipe, marks, lambda *_: None)
    session.warm_up(Plan(epochs=1, warmup_epochs=1, warmup_steps=None))
    return session.told


def main(result: Path, workload: str, weighted: str, keeping: str, asked: list[str]) -> None:
    seen = {}
    with opened("cpu") as world:
        seen["scores"] = scored(Path(workload), world)
        seen["drawn"] = drawn_in(Path(weighted), world)
        seen["told"] = {Path(file).stem: told_of(Path(file), world) for file in (workload, keeping)}
        for here, _, file in (a.partition(":") for a in asked):
            os.environ["LOCAL_RANK"] = str(world.rank % int(here))
            seen[Path(file).stem] = found_in(Path(file), world)
        if world.first:
            result.write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5], sys.argv[5:])
