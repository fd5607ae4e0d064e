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
# A tensor that each step puts in the workload, and rates that the optimizer draws when it is made.
KEPT = """scores = model(x) - self.center
        if model.training:
            self.center = 0.9 * self.center + 0.1 * scores.detach().mean(dim=0)"""
CENTRED = STILL.replace("scores = model(x)", KEPT).replace("batch_size = 16", "batch_size, center = 16, torch.zeros(2)")
RATES = """batch_size = 16

    def optimizer(self, parameters, lr):
        return torch.optim.SGD([{"params": [p], "lr": lr * (1 + torch.rand(()).item())} for p in parameters], lr=lr)"""
DRAWN = TUPLE.replace("batch_size = 16", RATES)
TEXTS = {"filled": FILLED, "computed": COMPUTED, "bare": BARE, "modes": MODES, "hooks": STILL.replace(*HOOKED)}
TEXTS |= {"centred": CENTRED, "drawn": DRAWN}
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
    """What a first batch fills, what steps keep in the workload and what an optimizer draws begin as by hand."""
    assert_equal(*both[kind])


def test_a_script_prints_no_accuracy_where_the_loss_gives_none(both):
    assert [len(line) for line in both["bare"][0]] == [2, 2]
    assert [len(line) for line in both["filled"][0]] == [4, 4]
