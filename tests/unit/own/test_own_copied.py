"""What is brought along when a loop by hand is made a workload: told before a ladder, in words of the user's."""

import pytest
from tests.own_files import PIECES, TUPLE, write

from laptime.errors import LaptimeError
from laptime.preflight.inspecting import inspect

_SCHEDULES = "return torch.optim.lr_scheduler."
_MADE = "return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / whole)"
_LOSS = "scores = model(x)"
_GAVE = "return F.cross_entropy(scores, y), (scores.argmax(1) == y).float().mean()"
_NORM = ("nn.ReLU()", "nn.BatchNorm2d(4)")
# So that half an epoch has more steps than one.
_MORE = ("batch_size = 16", "batch_size = 4")


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ("StepLR(optimizer, 1)", "fall from 0.1 to 0.01 within 1 of the 16 steps of an epoch"),
        ("StepLR(optimizer, 3, gamma=0.3)", "fall from 0.1 to 0.009 within 6 of the 16 steps of an epoch"),
        ("CosineAnnealingLR(optimizer, T_max=5)", "within 4 of the 16 steps of an epoch"),
        # Slow ones, in epochs that are shorter: by the epochs alone, and to a thousandth before a half of them.
        ("LambdaLR(optimizer, lambda epoch: 1 - min(epoch, epochs) / epochs)", "within 9 of the 16 steps of an epoch"),
        ("MultiStepLR(optimizer, [epochs - 1])", "fall from 0.1 to 0.01 within 9 of the 16 steps of an epoch"),
        ("StepLR(optimizer, 20)", "fall from 0.1 to 0.0001 within 60 steps (16 are an epoch)"),
        ("ExponentialLR(optimizer, 0.9)", "within 66 steps (16 are an epoch)"),
        ("MultiStepLR(optimizer, [20, 40, 75])", "fall from 0.1 to 0.0001 within 75 steps (16 are an epoch)"),
        ("MultiStepLR(optimizer, [15, 30])", "fall from 0.1 to 0.001 within 30 steps (16 are an epoch)"),
        ("MultiStepLR(optimizer, [20, 40, 100])", ""),
        ("MultiStepLR(optimizer, [steps_per_epoch, 2 * steps_per_epoch])", ""),
        ("MultiStepLR(optimizer, [10, 30], gamma=0.2)", ""),
        ("ExponentialLR(optimizer, 0.95)", ""),
        ("ExponentialLR(optimizer, 0.1 ** (1 / steps_per_epoch))", ""),
        ("StepLR(optimizer, 30)", ""),
        ("StepLR(optimizer, 2 * steps_per_epoch)", ""),
        ("StepLR(optimizer, 9, gamma=0.5)", ""),
        ("MultiStepLR(optimizer, [9 * steps_per_epoch])", ""),
        ("OneCycleLR(optimizer, 0.1, epochs=epochs, steps_per_epoch=steps_per_epoch)", ""),
        ("OneCycleLR(optimizer, 0.1, total_steps=epochs * 16)", ""),
        ("CosineAnnealingLR(optimizer, T_max=epochs * 16)", ""),
        ("CosineAnnealingLR(optimizer, T_max=60)", ""),
        ("LambdaLR(optimizer, lambda step: min(1, step / 500))", ""),
        ("LambdaLR(optimizer, lambda step: min(1, step / 5) * (1 - step / (epochs * 16)))", ""),
        ("CosineAnnealingLR(optimizer, T_max=steps_per_epoch * epochs)", ""),
        ("CosineAnnealingWarmRestarts(optimizer, steps_per_epoch)", ""),
        ("OneCycleLR(optimizer, 0.1, steps_per_epoch * epochs)", ""),
        ("LinearLR(optimizer, 0.01, total_iters=4)", ""),
        ("CyclicLR(optimizer, 0.01, 0.1, step_size_up=3)", ""),
        ("StepLR(optimizer, steps_per_epoch)", ""),
        ("LambdaLR(optimizer, lambda step: min(1, step / 20))", ""),
    ],
)
def test_a_schedule_that_counts_in_epochs_is_told(file, schedule, told):
    notice = inspect(write(file, PIECES, _MORE, (_MADE, f"{_SCHEDULES}{schedule}"))).notice
    assert ("let it count in steps" in notice) == bool(told)
    assert told in notice
    assert ("line" in notice) == bool(told)


def test_a_schedule_that_fails_for_other_epochs_is_no_matter_of_its_rates(file):
    changed = f"assert epochs == 1\n        {_SCHEDULES}StepLR(optimizer, 1)"
    assert "count in steps" not in inspect(write(file, PIECES, _MORE, (_MADE, changed))).notice


def test_a_loss_that_puts_the_net_into_training_mode_is_told(file):
    notice = inspect(write(file, TUPLE, _NORM, (_LOSS, "model.train()\n        scores = model(x)"))).notice
    assert "puts the net into training mode with test data, too" in notice
    assert "leave train() out" in notice
    assert "changes training" not in notice


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (
            TUPLE,
            [(_GAVE, "loss = F.cross_entropy(scores, y)\n        loss.backward()\n        return loss")],
            "second time.*where loss\\(\\) calls backward\\(\\) itself, leave that and the optimizer out",
        ),
        (
            PIECES,
            [("return torch.optim.SGD(", "return torch.optim.Adam(parameters), torch.optim.SGD(")],
            "def optimizer.*gave 2 optimizers in a tuple, and one is stepped after each batch.*Several nets",
        ),
        (TUPLE, [(".float().mean()", ".float().mean().item()")], r"gave \(a float32 tensor.*, float\).*no \.item\(\)"),
    ],
)
def test_what_a_loop_by_hand_has_is_refused_with_what_helps(file, text, changes, message):
    with pytest.raises(LaptimeError, match=message):
        inspect(write(file, text, *changes))


@pytest.mark.parametrize("given", ["Net", "Net()"])
def test_a_net_is_no_workload_and_is_not_called(file, given):
    net = (
        f"\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(2, 2)\n\n\nworkload = {given}\n"
    )
    with pytest.raises(LaptimeError, match=r"a net and no workload, since it has no data\(\)"):
        inspect(write(file, TUPLE + net).replace(":Workload", ":workload"))
