"""Variables of the environment that decide speed: which are taken, and which are told of as slowing a training down."""

from __future__ import annotations

import subprocess
import sys

import pytest

from laptime.devices import fingerprinted
from laptime.host.variables import slowing, variables_here
from laptime.records import Machine


def test_those_that_decide_speed_are_taken_by_name_and_no_other():
    given = {"OMP_WAIT_POLICY": " passive ", "HOME": "/root", "GOMP_SPINCOUNT": "0", "MKL_VERBOSE": ""}
    assert variables_here(4, given) == ("GOMP_SPINCOUNT=0", "OMP_WAIT_POLICY=passive")


def test_as_many_threads_as_cores_are_nothing_that_was_set():
    given = {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}
    assert variables_here(4, given) == ()
    assert variables_here(8, given) == ("MKL_NUM_THREADS=4", "OMP_NUM_THREADS=4")


def test_of_preloaded_libraries_only_names_are_kept():
    assert variables_here(2, {"LD_PRELOAD": "/home/me/libjemalloc.so.2:/opt/x.so libz.so"}) == (
        "LD_PRELOAD=libjemalloc.so.2:x.so:libz.so",
    )


@pytest.mark.parametrize(
    ("variable", "slow"),
    [
        ("OMP_WAIT_POLICY=PASSIVE", True),
        ("OMP_WAIT_POLICY=Active", False),
        ("OMP_NUM_THREADS=1", True),
        ("OMP_NUM_THREADS=3,1", True),
        ("OMP_NUM_THREADS=4", False),
        ("OMP_NUM_THREADS=all", False),
        ("MKL_NUM_THREADS=2", True),
        ("CUDA_LAUNCH_BLOCKING=1", True),
        ("CUDA_LAUNCH_BLOCKING=0", False),
        ("NVIDIA_TF32_OVERRIDE=0", True),
        ("NVIDIA_TF32_OVERRIDE=1", False),
        ("ONEDNN_VERBOSE=none", False),
        ("ATEN_CPU_CAPABILITY=default", True),
        ("GOMP_SPINCOUNT=0", False),
    ],
)
def test_what_slows_a_training_down_on_four_cores_is_told_with_its_name(variable, slow):
    told = slowing((variable,), cores=4)
    assert [text.startswith(f"{variable} is set in the environment: ") for text in told] == [True] * slow


def test_a_process_tells_of_what_it_began_with_and_not_of_what_a_training_sets():
    code = (
        "import os; from laptime.devices import host; os.environ['OMP_WAIT_POLICY'] = 'passive';"
        "print([v for v in host().variables if v.startswith('OMP')])"
    )
    around = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "OMP_PROC_BIND": "close"}
    done = subprocess.run([sys.executable, "-c", code], env=around, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['OMP_PROC_BIND=close']"


def test_a_fingerprint_holds_them_and_without_any_is_what_it_was():
    plain = Machine(cpu="a CPU", cores=2, torch="2.15.0")
    assert fingerprinted(plain).fingerprint == "bfe422193f31b42b"
    slow = plain.model_copy(update={"variables": ("OMP_WAIT_POLICY=passive",)})
    assert fingerprinted(slow).fingerprint != fingerprinted(plain).fingerprint
