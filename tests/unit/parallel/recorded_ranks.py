"""One rank of two that train with a recorded step: it fails where the recording outlives the group."""

import gc
import weakref

import torch.distributed as dist
from tests.unit.optimizations.test_graph import graph, small_recipe, trained

from laptime.world import opened


def main() -> None:
    gc.disable()  # what stands in a cycle is collected when it is asked for, or never
    ended = list[bool]()
    with opened("cpu"):
        _, _, parts = trained(small_recipe(graph), epochs=2)
        weakref.finalize(parts.step._tape, lambda: ended.append(dist.is_initialized()))
        del parts
        assert not ended, "a recording in no cycle proves nothing"
    assert ended == [True], ended


if __name__ == "__main__":
    main()
