"""One rank of two whose samples reach other weights than the other's: gradients are those of one process."""

import torch
from torch import nn

from laptime.optimizations.parallel import FlatReduce
from laptime.world import opened


class Experts(nn.Module):
    """Experts of one size, so that a mix-up of their gradients shows in no shape; the last is never reached."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        made = [torch.randn(3, 3, generator=generator, dtype=torch.float64) for _ in range(4)]
        self.experts = nn.ParameterList(map(nn.Parameter, made))
        self.turned = nn.Parameter(torch.randn(2, dtype=torch.cfloat, generator=generator))

    def forward(self, x: torch.Tensor, chosen: tuple[int, ...]) -> torch.Tensor:
        found = sum((x @ self.experts[expert] for expert in chosen), start=x)
        return found.square().mean() + (self.turned * (1 + 2j)).real.square().sum() * x.mean().float()


def main() -> None:
    with opened("cpu") as world:
        ranks, alone = Experts(), Experts()
        exchange = FlatReduce(2, torch.float32)
        inputs = torch.arange(12, dtype=torch.float64).view(2, 2, 3)
        # Both reach all, each another one, one reaches what neither did before, and each the other's.
        for chosen in [((0, 1, 2), (0, 1, 2)), ((0,), (1,)), ((0,), (0, 2)), ((1,), (0,))]:
            for net in (ranks, alone):
                net.zero_grad(set_to_none=True)
            ranks(inputs[world.rank], chosen[world.rank]).backward()
            exchange(ranks)
            torch.stack([alone(x, part) for x, part in zip(inputs, chosen, strict=True)]).mean().backward()
            for mine, whole in zip(ranks.parameters(), alone.parameters(), strict=True):
                assert (mine.grad is None) == (whole.grad is None), chosen
                if mine.grad is not None:
                    torch.testing.assert_close(mine.grad, whole.grad)


if __name__ == "__main__":
    main()
