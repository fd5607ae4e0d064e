"""Trainings of a user's own with their printed scripts, once for a module: its FILES by kind, its CASES."""

from collections.abc import Iterator

import pytest
from tests.unit.script.script_runs import inspected, run_own_scripts

from laptime.spec import DataSpec


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, DataSpec]]:
    """What the look into each training has found, by kind."""
    files = {kind: (text, attribute) for kind, (text, attribute, _) in request.module.FILES.items()}
    with inspected(tmp_path_factory.mktemp(request.module.__name__.rpartition("_")[2]), files) as trainings:
        yield trainings


@pytest.fixture(scope="module")
def printed(
    request: pytest.FixtureRequest, found: dict[str, DataSpec], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[tuple[float, ...]]]:
    """What their scripts have trained to, by `kind|variant`."""
    return run_own_scripts(tmp_path_factory.mktemp("scripts"), request.module.CASES, found)
