"""Scripts of odd ones: buffers that a batch fills or a net computes, no accuracy, optimizers with modes and hooks."""

import pytest
from tests.own_files import TUPLE
from tests.unit.own.test_own_computed_buffers import SPIKING
from tests.unit.own.test_own_modes import FREE, HOOKED
from tests.unit.own.test_own_tallies import BY_FIRST
from tests.unit.script.script_runs import assert_equal, inspected, numbers_of, run_laptime, run_own_scripts

from laptime.variants import resolve

STILL = TUPLE.replace("nn.Dropout(), ", "")
FILLED = STILL
for change in BY_FIRST:
    FILLED = FILLED.replace(*change)
COMPUTED = TUPLE
for change in SPIKING:
    COMPUTED = COMPUTED.replace(*change)
BARE = STILL.replace(", (scores.argmax(1) == y).float().mean()", "")
MODES = STILL.replace(*FREE)
TEXTS = {"filled": FILLED, "computed": COMPUTED, "bare": BARE, "modes": MODES, "hooks": STILL.replace(*HOOKED)}
FILES = {kind: (text, "Workload") for kind, text in TEXTS.items()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The figures of each script and of each run."""
    folder = tmp_path_factory.mktemp("odd")
    with inspected(folder, FILES) as found:
        printed = run_own_scripts(folder, [(kind, "cpu-baseline") for kind in FILES], found)
        runs = {kind: run_laptime(resolve("cpu-baseline"), "own", found[kind], folder / kind) for kind in FILES}
        yield {kind: (printed[f"{kind}|cpu-baseline"], numbers_of(runs[kind])) for kind in FILES}


@pytest.mark.parametrize("kind", FILES)
def test_a_script_trains_to_the_losses_of_the_run(kind, both):
    """A net whose buffers are empty before its first batch begins with them so, behind its warm-up too."""
    assert_equal(*both[kind])


def test_a_script_prints_no_accuracy_where_the_loss_gives_none(both):
    assert [len(line) for line in both["bare"][0]] == [2, 2]
    assert [len(line) for line in both["filled"][0]] == [4, 4]
