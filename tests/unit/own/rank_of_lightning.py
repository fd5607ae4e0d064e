"""One rank of two that opens LightningModules and makes their models.

python rank_of_lightning.py RESULT.json RANKS_A_MACHINE:LIT.py..., with the environment of torch's launcher.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from laptime.data.own import open_own
from laptime.world import World, opened


def found_in(file: Path, world: World) -> tuple[list[str], ...]:
    data = open_own(file, "Lit")
    if world.first:  # as for a comparison's baseline, which the first rank takes alone
        data.workload.model()
    return world.collected(sys.modules[file.stem].CALLS)


def main(result: Path, asked: list[str]) -> None:
    seen = {}
    with opened("cpu") as world:
        for here, _, file in (a.partition(":") for a in asked):
            os.environ["LOCAL_RANK"] = str(world.rank % int(here))
            seen[Path(file).stem] = found_in(Path(file), world)
        if world.first:
            result.write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
