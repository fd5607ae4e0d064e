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
