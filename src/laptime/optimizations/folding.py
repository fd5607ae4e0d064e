"""Stage model: frozen BatchNorm as a part of the convolution before it."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torchvision.ops import FrozenBatchNorm2d

from laptime.optimizations.base import Options, Recipe
from laptime.values.copies import copy_of


def folded_norms(recipe: Recipe, options: Options) -> Recipe:
    """Multiplies frozen BatchNorm's scale into the weights instead of the maps, and its shift into the bias.

    A map is then written once instead of three times. Pairs are found by the names that torchvision gives: `conv1` and
    `bn1` in one module, `0` and `1` in a downsampling.
    """
    model = copy_of(recipe.model)
    pairs = [p for module in model.modules() for p in _pairs(module)]
    for module, conv, norm in pairs:
        _fold(module, conv, norm)
    trained = sum(c.weight.requires_grad for c in model.modules() if isinstance(c, FoldedConv))
    note = f"{len(pairs)} frozen norms folded, {trained} of them into weights that are trained"
    return replace(recipe, model=model, notes=(*recipe.notes, note))


def _pairs(module: nn.Module) -> list[tuple[nn.Module, str, str]]:
    names = dict(module.named_children())
    wanted = [("0", "1")] if isinstance(module, nn.Sequential) else [(f"conv{i}", f"bn{i}") for i in (1, 2, 3)]
    return [
        (module, conv, norm)
        for conv, norm in wanted
        if type(names.get(conv)) is nn.Conv2d and type(names.get(norm)) is FrozenBatchNorm2d
    ]


def _fold(module: nn.Module, conv: str, norm: str) -> None:
    before = getattr(module, norm)
    passed = Passed(len(before.weight), before.eps)
    passed.load_state_dict(before.state_dict())
    setattr(module, conv, FoldedConv(getattr(module, conv), before))
    setattr(module, norm, passed)


class Passed(FrozenBatchNorm2d):  # type: ignore[misc]
    """A frozen norm that the convolution before it has taken in; it keeps its values for the plain net's state."""

    def forward(self, x: Tensor) -> Tensor:
        """Hands its input on."""
        return x


class FoldedConv(nn.Conv2d):
    """A convolution that multiplies its weights with a norm's scale, and adds the norm's shift.

    The parameter is the plain convolution's, under its name; gradients reach it through the product.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, conv: nn.Conv2d, norm: FrozenBatchNorm2d) -> None:
        super().__init__(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,  # type: ignore[arg-type]
            conv.stride,  # type: ignore[arg-type]
            conv.padding,  # type: ignore[arg-type]
            conv.dilation,  # type: ignore[arg-type]
            conv.groups,
            bias=False,
            device="meta",
        )
        self.weight = conv.weight
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        self.register_buffer("scale", scale.reshape(-1, 1, 1, 1).clone(), persistent=False)
        self.register_buffer("shift", (norm.bias - norm.running_mean * scale).clone(), persistent=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's own name
        """The convolution and the norm behind it."""
        weight = self.weight * self.scale
        return F.conv2d(input, weight, self.shift, self.stride, self.padding, self.dilation, self.groups)
