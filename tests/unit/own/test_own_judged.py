"""Nets that give a loss in training mode alone, as torchvision's detectors do, and what their test data are told."""

import pytest
from tests.own_files import F1, TUPLE, write
from tests.unit.own.test_lightning_module import lit

from laptime.errors import LaptimeError
from laptime.preflight.inspecting import inspect

# A net that gives its loss in training mode, and in evaluation mode what it finds.
NET = """

class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 2))

    def forward(self, x, y=None):
        scores = self.net(x)
        return {"loss": F.cross_entropy(scores, y)} if self.training else {"scores": scores}
"""
FINDER = TUPLE[: TUPLE.index("    def model")] + (
    """    def model(self):
        return Finder()

    def loss(self, model, batch):
        return model(*batch)["loss"]
"""
)
ASKED = 'return model(*batch)["loss"]'
TRAINED = (ASKED, f"model.train()\n        {ASKED}")
BACK = (
    "was = model.training\n        model.train()\n        lost = ASKED\n        model.train(was)\n        return lost"
)
RESTORED = (ASKED, BACK.replace("ASKED", ASKED.removeprefix("return ")))
ALONE = "its net gives a loss in training mode alone, so return torch.tensor(torch.nan) where model.training is not set"


@pytest.mark.parametrize(
    ("judged", "by"), [("", "and judge it by an evaluate() of your own."), (F1, "which evaluate() judges.")]
)
def test_a_loss_that_is_there_in_training_mode_alone_is_told_what_helps(file, judged, by):
    with pytest.raises(LaptimeError) as raised:
        inspect(write(file, FINDER + judged + NET))
    assert "on the test data failed: KeyError: 'loss'" in str(raised.value)
    assert str(raised.value).endswith(f"{ASKED}): {ALONE}, {by}")


@pytest.mark.parametrize("change", [TRAINED, RESTORED])
def test_train_in_the_loss_of_such_a_net_is_not_told_to_be_left_out(file, change):
    notice = inspect(write(file, FINDER + NET, change)).notice
    assert "puts the net into training mode with test data, too" in notice
    assert f"teach BatchNorm: {ALONE}, and judge it by an evaluate() of your own." in notice
    assert "train() out" not in notice


def test_what_helps_goes_through(file):
    nothing = f"if not model.training:\n            return torch.tensor(torch.nan)\n        {ASKED}"
    judged = "    def evaluate(self, model, batches):\n        return 0.5\n"
    data = inspect(write(file, FINDER + judged + NET, (ASKED, nothing)))
    assert data.own.quality == "score"
    assert "training mode" not in data.notice


def test_a_net_with_a_loss_in_both_modes_needs_no_train(file):
    for change in (TRAINED, RESTORED):
        notice = inspect(write(file, FINDER + NET, change, (' if self.training else {"scores": scores}', ""))).notice
        assert "leave train() out, since laptime calls it before it trains." in notice
        assert ALONE not in notice


def test_a_loss_that_fails_in_both_modes_is_told_as_it_fails(file):
    few = "assert torch.is_grad_enabled()\n        "
    with pytest.raises(LaptimeError) as raised:
        inspect(write(file, FINDER + NET, (ASKED, few + ASKED)))
    assert "on the test data failed: AssertionError" in str(raised.value)
    assert ALONE not in str(raised.value)


def test_a_lightning_module_has_a_step_of_its_own_for_that(file):
    with pytest.raises(LaptimeError) as raised:
        inspect(
            lit(
                file,
                (
                    "        scores = self.net(inputs)\n",
                    "        scores = self.net(inputs)\n        assert self.training\n",
                ),
            )
        )
    assert "on the test data failed: AssertionError" in str(raised.value)
    assert "evaluate()" not in str(raised.value)
