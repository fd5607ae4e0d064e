"""Which GPUs a process means, and what they lack; decided without one."""

import pytest

from laptime.devices import Gpu, chosen, lock_name, others_on
from laptime.probe import lacks

GPUS = (Gpu("GPU-aa11", "first"), Gpu("GPU-bb22", "second"), Gpu("GPU-bb33", "third"))


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["first", "second", "third"]),
        ("1", ["second"]),
        ("2,0", ["third", "first"]),
        ("GPU-aa", ["first"]),
        ("GPU-bb22,0", ["second", "first"]),
        ("GPU-bb", []),
        ("0,7,1", ["first"]),
        ("", []),
        ("-1", []),
    ],
)
def test_the_visible_gpus_are_those_that_cuda_would_show(visible, names):
    assert [g.name for g in chosen(GPUS, visible)] == names


def test_the_cpu_is_locked_by_its_name_and_nobody_is_asked_about_it():
    assert lock_name("cpu") == "cpu"
    assert others_on("cpu") == ()


def test_an_old_gpu_lacks_formats_with_its_reason():
    assert set(lacks("T4", (7, 5))) == {"bf16", "tf32"}
    assert "T4 has compute capability 7.5" in lacks("T4", (7, 5))["bf16"]
    assert set(lacks("P100", (6, 0))) == {"bf16", "fp16", "tf32"}
    assert lacks("H200", (9, 0)) == {}
