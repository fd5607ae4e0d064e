"""Two real ranks on trainings of users' own whose loss draws, and asks more of the net than a forward pass."""

import pytest
from tests.integration.test_ranks_script import of_run, of_script
from tests.own_files import TUPLE, own_spec, write
from tests.unit.script.script_runs import assert_equal

from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.variants import resolve

PLAIN, TUNED = "cpu-baseline+ddp", "cpu-baseline+ddp:tuned=true"
# A buffer, a method of the net's, and two passes: DistributedDataParallel has neither of the first two.
ASKING = """
class Net(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self.register_buffer("scale", torch.tensor(0.5))

    def features(self, x):
        return self[:-1](x)


class Workload:
"""
ASKS = (
    ("\nclass Workload:\n", ASKING),
    ("nn.Sequential(", "Net("),
    ("nn.Dropout(), ", ""),
    ("scores = model(x)", "scores = model[-1](model.features(x)) * model.scale + model(x)"),
)
# As a diffusion model's loss draws: time steps, noise like the images, and pairs of samples.
NOISY = (
    "scores = model(x)",
    "t = torch.randint(1, 9, (len(x),)).view(-1, 1, 1, 1) / 8\n"
    "        x = t * x + (1 - t) * torch.randn_like(x)\n"
    "        x = 0.7 * x + 0.3 * x[torch.randperm(len(x))]\n"
    "        scores = model(x)",
)


@pytest.mark.parametrize(("variant", "name"), [(PLAIN, "asking_plain"), (TUNED, "asking_tuned")])
def test_a_script_of_a_loss_that_asks_more_of_the_net(variant, name, tmp_path):
    data = inspect(write(tmp_path / f"{name}.py", TUPLE, *ASKS))
    text = print_script(resolve(variant), "own", data)
    assert "DistributedDataParallel(WholeLoss(net)" in text
    assert_equal(of_script(text, [], tmp_path), of_run(resolve(variant), data, tmp_path / "run"))


@pytest.mark.parametrize(("changes", "name"), [(ASKS, "asking_checked"), ((NOISY,), "noisy_checked")])
def test_the_step_of_ranks_is_that_of_one_process(changes, name, tmp_path):
    data = inspect(write(tmp_path / f"{name}.py", TUPLE, *changes))
    # Two ranks share 15 samples unequally.
    spec = own_spec(data, TUNED, batch_size=15, ranks=2, timeout_s=300)
    record = launch("auto", spec, tmp_path / "run", Hooks())
    assert record.status == "done", record.error
    assert record.check.passed
    assert record.check.loss_error < 1e-5
    assert record.check.gradient_error < 1e-4


_UNFREEZING = [
    ("nn.Dropout(), ", ""),
    ("        return nn.Sequential(", "        net = nn.Sequential("),
    ("nn.Linear(256, 2))\n", "nn.Linear(256, 2))\n        net[0].requires_grad_(False)\n        return net\n"),
    ("    batch_size = 16\n", "    batch_size = 16\n    steps = 0\n"),
    (
        "scores = model(x)",
        "self.steps += 1\n        model[0].requires_grad_(self.steps > 3)\n        scores = model(x)",
    ),
]


def test_weights_that_are_trained_later_end_ranks_which_would_not_exchange_them(tmp_path):
    data = inspect(write(tmp_path / "unfreezing.py", TUPLE, *_UNFREEZING))
    spec = own_spec(data, PLAIN, epochs=2, ranks=2, timeout_s=300)
    record = launch("auto", spec, tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert "0.weight was frozen when ddp wrapped the net and is trained now" in record.error


_NAMED = (
    ("return TensorDataset(X[:64], Y[:64]),", "return [(x, y, str(n % 3)) for n, (x, y) in enumerate(zip(X, Y))],"),
    ("TensorDataset(X[64:], Y[64:])", "[(x, y, '1') for x, y in zip(X[64:], Y[64:])]"),
    ("x, y = batch", "x, y, names = batch"),
    ("nn.Dropout(), ", ""),
    ("scores = model(x)", "scores = model(x) * FACTOR"),
)


@pytest.mark.parametrize(
    ("factor", "told"), [("sum(map(int, names)) / len(names)", True), ("(1 + (len(names) == 16))", False)]
)
def test_ranks_are_compared_by_the_names_of_their_own_samples(factor, told, tmp_path):
    """Names stood whole beside a rank's part of the tensors, and a loss of all of them passed.

    Of the eight samples that the look cuts into parts the first loss is told before; the second one is the same there.
    """
    data = inspect(write(tmp_path / f"named_{told}.py", TUPLE, *_NAMED, ("FACTOR", factor)))
    assert ("ddp" in data.own.refused) == told
    if told:
        return
    spec = own_spec(data, PLAIN, epochs=1, ranks=2, timeout_s=300)
    assert launch("auto", spec, tmp_path / "run", Hooks()).status == "wrong"
