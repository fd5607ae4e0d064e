"""Kernels that can't be cropped exactly stay whole, each with its reason."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from laptime.optimizations.dead_taps import dead_parameters, dead_taps, update_refusal
from laptime.optimizations.live_taps import LiveConv
from laptime.optimizations.shapes import ShapesUnknownError, input_shapes
from laptime.workloads.base import Output
from laptime.workloads.cifar import Cifar


class Net(nn.Module):
    """A net with whatever is wanted between a convolution and its logits."""

    def __init__(self, forward, **modules) -> None:
        super().__init__()
        self.how = forward
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, images):
        return self.how(self, images)


def cropped_or_why(recipe, net, **changes):
    changed = dead_taps(replace(recipe, model=net, **changes), {})
    return any(isinstance(m, LiveConv) for m in changed.model.modules()), " ".join(changed.notes)


def conv() -> nn.Conv2d:
    return nn.Conv2d(3, 3, 3, padding=1)


def pooled(net, images):
    return net.conv(nn.functional.adaptive_avg_pool2d(images, 1)).flatten(1)


def tied(net, images):
    return net.other(pooled(net, images)[..., None, None]).flatten(1)


def twice(net, images):
    return net.conv(pooled(net, images)[..., None, None]).flatten(1)


def padded(net, images):
    return net.conv(nn.functional.pad(images.mean((2, 3), keepdim=True), (1, 1, 1, 1))).mean((2, 3))


def larger(net, images):
    return net.conv(nn.functional.adaptive_avg_pool2d(images, 2)).mean((2, 3))


def by_value(net, images):
    return pooled(net, images if images.sum() > 0 else -images)


def other_in_evaluation(net, images):
    return net.conv(images.mean((2, 3), keepdim=True) if net.training else images).mean((2, 3))


def other_than_called(net, images):
    return net.same(nn.functional.adaptive_avg_pool2d(images, 1)).flatten(1)


def penalized(net, images):
    return pooled(net, images) + sum(p.square().sum() for p in net.parameters())


def called_by_hand(net, images):
    return pooled(net, images) + nn.functional.conv2d(images, net.conv.weight, padding=1).mean((2, 3))


def bounded(net, images):
    net.conv.weight.data = torch.renorm(net.conv.weight.data, 2, 0, 1.0)
    return pooled(net, images)


def placed(net, images):
    return pooled(net, images.to(net.conv.weight.device, net.conv.weight.dtype))


@pytest.mark.parametrize("forward", [penalized, called_by_hand, bounded])
def test_a_weight_that_something_else_reads_is_left_whole(recipe, forward):
    found, why = cropped_or_why(recipe, Net(forward, conv=conv()))
    assert not found
    assert "dead taps of conv left in: its weight is read by something else than its own call" in why
    assert dead_parameters(replace(recipe, model=Net(forward, conv=conv()))) == 0


def test_what_asks_a_weight_for_its_place_alone_is_cropped(recipe):
    assert cropped_or_why(recipe, Net(placed, conv=conv()))[0]


def test_a_parametrized_weight_beside_others_is_no_obstacle_to_them(recipe):
    """Each reading of it makes a new tensor, whose id tells nothing."""
    normed = nn.utils.parametrizations.weight_norm(conv())
    net = Net(lambda net, images: net.conv(net.normed(images.mean((2, 3), keepdim=True))).flatten(1))
    net.normed, net.conv = normed, conv()
    found, why = cropped_or_why(recipe, net)
    assert found
    assert "normed left in: its class or its weight's parametrization" in why


def silent_in_evaluation(net, images):
    """As a detector's loss that is nan there, or an average that stands in for the net."""
    return pooled(net, images) if net.training else images.mean((2, 3))


def replaced(images):
    return images


def test_what_can_not_be_cropped_exactly_is_refused_with_the_reason(recipe):
    assert cropped_or_why(recipe, Net(pooled, conv=conv()))[0]
    held_twice = conv()
    watched = conv()
    watched.register_full_backward_pre_hook(lambda *_: None)
    own_forward = conv()
    own_forward.forward = replaced
    shared = conv()
    shared_weight = conv()
    shared_weight.weight = shared.weight
    hooked = conv()
    hooked.register_forward_hook(lambda *_: None)
    normed = nn.utils.parametrizations.weight_norm(conv())
    for net, reason in (
        (Net(twice, conv=conv()), "exactly once"),
        (Net(silent_in_evaluation, conv=conv()), "training and evaluation do not both call it exactly once"),
        (Net(tied, conv=shared, other=shared_weight), "shared"),
        (Net(by_value, conv=conv()), "shapes alone"),
        (Net(other_in_evaluation, conv=conv()), "other sizes"),
        (Net(larger, conv=nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")), "reflect"),
        (Net(pooled, conv=hooked), "hooks"),
        (Net(pooled, conv=normed), "parametrization"),
        (Net(pooled, conv=watched), "hooks"),
        (Net(pooled, conv=own_forward), "its forward was replaced"),
        (Net(other_than_called, conv=held_twice, same=held_twice), "several names"),
    ):
        found, why = cropped_or_why(recipe, net)
        assert not found
        assert reason in why
    assert not cropped_or_why(recipe, Net(padded, conv=nn.Conv2d(3, 3, 3)))[0]


def test_images_of_several_sizes_are_cropped_where_the_same_taps_are_dead(recipe):
    fine, why = cropped_or_why(recipe, resnet18(num_classes=3), epoch_sizes=((24, 24), (32, 32)))
    assert fine
    assert "6,946,816" in why
    assert "left in" not in why
    fine, why = cropped_or_why(recipe, resnet18(num_classes=3), epoch_sizes=((64, 64), (32, 32)))
    assert not fine
    assert "other sizes" in why


class Named(Cifar):
    """A workload whose net takes two inputs by name."""

    def forward(self, model, batch):
        logits = model(images=batch.inputs, scale=batch.labels.float().mean())
        loss = nn.functional.cross_entropy(logits, batch.labels)
        return Output(loss, torch.zeros((), dtype=torch.int64), len(batch))


class TakesTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = conv()

    def forward(self, *, images, scale):
        return self.conv(input=nn.functional.adaptive_avg_pool2d(images, 1) * scale).flatten(1)


def test_nets_with_several_inputs_are_run_by_their_own_workload(recipe):
    assert cropped_or_why(recipe, TakesTwo(), workload=Named())[0]
    shapes = input_shapes(
        TakesTwo(), [lambda m: m(images=torch.empty(2, 3, 8, 8, device="meta"), scale=1.0)], (nn.Conv2d,)
    )
    assert shapes == {"conv": [[(2, 3, 1, 1)], [(2, 3, 1, 1)]]}
    with pytest.raises(ShapesUnknownError, match="shapes alone"):
        input_shapes(TakesTwo(), [lambda m: m(images=torch.empty(2, 3, 8, 8))], (nn.Conv2d,))


def optimizer(kind, **options):
    return kind([nn.Parameter(torch.zeros(2))], lr=0.1, **options)


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (optimizer(torch.optim.Adam), None),
        (optimizer(torch.optim.Adam, weight_decay=0.1), "own rate"),
        (optimizer(torch.optim.Adam, weight_decay=0.1, decoupled_weight_decay=True), None),
        (optimizer(torch.optim.AdamW, weight_decay=0.1), None),
        (optimizer(torch.optim.SGD, weight_decay=0.1, momentum=0.9), None),
        (optimizer(torch.optim.RMSprop), "not known"),
    ],
)
def test_optimizers_that_move_dead_taps_unalike_are_refused(made, refused):
    why = update_refusal(made)
    assert (why is None) if refused is None else (refused in why)


def test_adam_with_l2_leaves_them_in(recipe):
    fine, why = cropped_or_why(recipe, Net(pooled, conv=conv()), optimizer_options={"weight_decay": 0.1})
    assert not fine
    assert "L2 in the gradient" in why
