"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from laptime.devices import hopeless_here

# A shell without job control starts what it puts into the background with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes, or its making, says how busy the machine is.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

# Of what is imported and collected nothing is garbage, and looking for it takes a quarter of the time before any test.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """Gives each stream of tests device locks of its own: nothing is timed here, so nobody has to wait for another."""
    folder = tempfile.mkdtemp(prefix="laptime-locks-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["LAPTIME_LOCKS"] = folder


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on garbage is looked for, though not among what all tests share: a million objects each time."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Has torch's bindings freed, which complain otherwise."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def _imports_are_no_garbage() -> Iterator[None]:
    """Leaves what a file of tests has imported out of further searches, which trainings ask for time and again."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    """Puts back what process-wide optimizations set, for tests that run them in this process."""
    before = sys.modules.get("torch")
    threads = before.get_num_threads() if before is not None else None
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        if threads is not None and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)  # sums are rounded by it
        torch.set_flush_denormal(False)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.benchmark = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what takes minutes, here or everywhere, unless asked for, and what needs a GPU where there is none.

    torch is imported only where a test for a GPU was collected.
    """
    if not config.getoption("--long"):
        slow = {"long"} | ({"bf16"} if hopeless_here("", ("bf16",), "cpu") else set())
        for item in items:
            if slow & {mark.name for mark in item.iter_markers()}:
                item.add_marker(pytest.mark.skip(reason="takes minutes: give --long"))
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    import torch

    if not torch.cuda.is_available():
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
