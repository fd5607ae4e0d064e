"""What a compiled variant's epochs are held against."""

from compare_examples import ladder, record

from laptime.compare.comparison import compare
from laptime.records import Rung


def test_a_compiled_rung_on_a_compiled_one_is_held_against_itself_without_its_compiler() -> None:
    runs = [record("cuda-baseline", 85), record("cuda-compile", 50, names=("compile",))]
    graphed = record("cuda-optimized", 40, names=("compile-graphed",))
    runs.append(graphed.model_copy(update={"compile_s": 30.0}))
    runs.append(record("cuda-optimized-without-compile-graphed", 60))
    rungs = [Rung(variant=r.spec.variant, optimizations=r.spec.optimizations) for r in runs]
    rungs[2] = rungs[2].model_copy(update={"on": "cuda-compile"})
    found = compare(ladder().model_copy(update={"rungs": tuple(rungs), "left_out": (), "device": "cuda"}), runs)
    mine = next(r for r in found.rows if r.variant == "cuda-optimized")
    assert mine.break_even_on == "cuda-optimized-without-compile-graphed"
    assert mine.break_even_epochs == 2
