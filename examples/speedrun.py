"""A short training on CIFAR-10: `SPEEDRUN_DATA=DIR laptime optimize examples/speedrun.py:workload --epochs 8`.

It is another net and another training than laptime's `cifar`, so its times stand apart: nothing here is the same
training made faster. The ideas are others', the code is written for this file:

- patches of the input are whitened by a fixed first convolution, a small net for 32x32 images follows, each image is
  mirrored in every second epoch, labels are smoothed, and uncertain test images are looked at several times:
  Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (arXiv:2404.00498);
- convolutions' filters are trained by Muon: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/).

DIR is a folder of images (train/<class>/* and test/<class>/*, of one size) or, since decoding them takes each process
a while, the store that `laptime data fetch cifar --data DIR` names at its end. Without it the images are generated, and
their accuracy says nothing about CIFAR-10. It has never run on a GPU; no time is claimed.
"""

import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torch.optim.lr_scheduler import LambdaLR
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import pil_to_tensor

DATA = os.environ.get("SPEEDRUN_DATA")
if not DATA:
    print("speedrun: SPEEDRUN_DATA names no folder, so the images are generated", file=sys.stderr)  # noqa: T201
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of CIFAR-10's channels


class Images(torch.utils.data.Dataset):
    """Normalized images [3, H, W], each with its label and its number, by which the net knows how often it saw it."""

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
        self.images = pixels.float().div_(255).sub_(mean).div_(std)  # once, so that an item is no more than a look-up
        self.labels = labels.long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.images[index], self.labels[index], index


@cache
def read(split: str) -> Images:
    """The images of `train` or `test`, once: out of a store of laptime's (docs/data.md), a folder, or generated."""
    if not DATA:
        return generated(*((2000, 0) if split == "train" else (500, 1)))
    if (Path(DATA) / f"{split}_images.npy").is_file():
        pixels, labels = (torch.from_numpy(np.load(f"{DATA}/{split}_{what}.npy")) for what in ("images", "labels"))
        return Images(pixels.permute(0, 3, 1, 2), labels)
    pairs = [(pil_to_tensor(image), label) for image, label in ImageFolder(Path(DATA) / split)]
    return Images(torch.stack([image for image, _ in pairs]), torch.tensor([label for _, label in pairs]))


def generated(count: int, seed: int) -> Images:
    """Ten coarse patterns, faint under noise: something to learn where there are no photographs."""
    patterns = torch.randn(10, 3, 8, 8, generator=torch.Generator().manual_seed(10))
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    seen = F.interpolate(patterns, scale_factor=4, mode="bilinear")[labels]
    return Images(128 + 16 * seen + 40 * torch.randn(seen.shape, generator=random), labels)


def moved(images: torch.Tensor, down: torch.Tensor, right: torch.Tensor, mirror: torch.Tensor) -> torch.Tensor:
    """Each image [B, C, H, W] mirrored and moved by whole pixels, as [B] say; the border reflects what is inside.

    One gather does all of it, on whatever device the images are, and nothing waits for that device.
    """
    each, channel, rows, columns = (torch.arange(size, device=images.device) for size in images.shape)
    rows, columns = (
        len(places) - 1 - (len(places) - 1 - (places - by[:, None]).abs()).abs()
        for places, by in ((rows, down), (columns, right))
    )
    columns = torch.where(mirror[:, None] > 0, images.shape[3] - 1 - columns, columns)
    return images[each[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None]]


def scattered(numbers: torch.Tensor) -> torch.Tensor:
    """Whole numbers that look random, the same on every device: a multiplicative hash of 32 bits."""
    for factor in (0x9E3779B1, 0x85EBCA6B):
        numbers = (numbers * factor) & 0xFFFFFFFF
        numbers = numbers ^ (numbers >> 15)
    return numbers


def whitening(images: torch.Tensor) -> nn.Conv2d:
    """A fixed convolution whose outputs are uncorrelated and of variance 1 on these images; each with both signs.

    Neighbouring pixels are nearly alike, so the directions that tell edges apart are faint: a step of the optimizer
    hardly sees them until they are scaled up. Rows are the eigenvectors of the 2x2 patches' covariance over the roots
    of their eigenvalues. Both signs, since the activation behind it cuts off what is negative; its bias is trained.
    """
    patches = F.unfold(images, kernel_size=2).transpose(1, 2).flatten(0, 1)  # [images * places, 12]
    patches = patches - patches.mean(dim=0)
    variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
    rows = (directions / (variances + 5e-4).sqrt()).T  # what is next to nothing stays small
    convolution = nn.Conv2d(3, 2 * len(rows), kernel_size=2)
    convolution.weight.data.copy_(torch.cat([rows, -rows]).view_as(convolution.weight))
    convolution.weight.requires_grad_(False)
    nn.init.zeros_(convolution.bias)
    return convolution


def block(given: int, width: int) -> nn.Sequential:
    """Two convolutions, the first of which halves the map; at first they pass on what they get."""
    first, second = (nn.Conv2d(channels, width, 3, padding=1, bias=False) for channels in (given, width))
    for convolution in (first, second):
        nn.init.dirac_(convolution.weight.data[: convolution.in_channels])
    norms = [nn.BatchNorm2d(width, momentum=0.4) for _ in range(2)]  # a short memory: the training has few steps
    return nn.Sequential(first, nn.MaxPool2d(2), norms[0], nn.GELU(), second, norms[1], nn.GELU())


class Net(nn.Module):
    """Whitening, blocks, a linear layer; it varies its training images itself, on their device.

    How often it has seen each image is a buffer, so checkpoints hold it; what is done to an image follows from its
    number, that count and the run's seed alone. On several ranks counts are not exact, and mirroring is by chance.
    """

    def __init__(self, images: torch.Tensor, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.whiten = whitening(images[:: max(1, len(images) // 5000)])
        channels = (self.whiten.out_channels, *widths)
        self.blocks = nn.Sequential(nn.GELU(), *(block(a, b) for a, b in zip(channels, widths, strict=False)))
        self.head = nn.Linear(widths[-1], classes, bias=False)
        self.register_buffer("visits", torch.zeros(len(images), dtype=torch.long))
        self.register_buffer("salt", torch.randint(2**30, ()))

    def forward(self, images: torch.Tensor, numbers: torch.Tensor | None = None) -> torch.Tensor:
        """Images [B, 3, H, W] to scores [B, classes]; in training `numbers` [B] says which images they are."""
        if self.training and numbers is not None:
            images = self.varied(images, numbers)
        maps = self.blocks(self.whiten(images))
        return self.head(maps.amax(dim=(2, 3))) / 9  # small at first, so that early steps move the filters

    def varied(self, images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Moved by up to 2 pixels; mirrored or not by chance the first time, from then on in turn."""
        seen = self.visits[numbers]
        mirror = (scattered(numbers + self.salt) + seen) % 2
        place = scattered(numbers + len(self.visits) * (seen + 1) + self.salt)
        self.visits[numbers] = seen + 1
        return moved(images, place % 5 - 2, place // 5 % 5 - 2, mirror)


def orthogonal(matrices: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """The nearest orthogonal matrices of many [N, rows, columns], roughly: singular values become about 1.

    Newton-Schulz: an odd polynomial of a matrix moves its singular values and leaves the rest. These coefficients
    (Jordan 2024) are steep at 0 rather than exact at 1. On a GPU in bfloat16, which is enough for that.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.transpose(1, 2), steps).transpose(1, 2)
    found = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    found = found / (found.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = torch.bmm(found, found.transpose(1, 2))
        polynomial = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
        found = torch.baddbmm(found, polynomial, found, beta=3.4445)
    return found.to(matrices.dtype)


def orthogonalized(updates: list[torch.Tensor]) -> list[torch.Tensor]:
    """Each [out, in, h, w] as a matrix with a row for each filter; those of one shape go through in one batch."""
    found = list(updates)
    for shape in {u.shape for u in updates}:
        alike = [i for i, u in enumerate(updates) if u.shape == shape]
        for i, matrix in zip(alike, orthogonal(torch.stack([updates[i].flatten(1) for i in alike])), strict=True):
            found[i] = matrix.reshape(shape)
    return found


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum; in groups with `orthogonal` the updates of filters are made orthogonal.

    torch.optim.Muon takes matrices alone, one after another, and nothing else beside them. The filters' norm is held:
    BatchNorm behind them makes it meaningless, and were it to grow, the same step would turn them less.
    """

    def __init__(self, params, lr: float, momentum: float = 0.85, orthogonal: bool = False) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "orthogonal": orthogonal})

    @torch.no_grad()
    def step(self, closure=None):
        """One step; a parameter without a gradient stays as it is."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            gradients, momentum = [p.grad for p in parameters], group["momentum"]
            for p in parameters:
                if not self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            buffers = [self.state[p]["momentum_buffer"] for p in parameters]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, gradients)
            updates = torch._foreach_add(gradients, buffers, alpha=momentum)
            if group["orthogonal"]:
                torch._foreach_div_(parameters, torch._foreach_norm(parameters))
                torch._foreach_mul_(parameters, [len(p) ** 0.5 for p in parameters])
                updates = orthogonalized(updates)
            torch._foreach_add_(parameters, updates, alpha=-float(group["lr"]))
        return loss


class Speedrun:
    """What laptime asks for, wide enough for a GPU: two million parameters."""

    name = "speedrun" if DATA else "speedrun-stand-in"
    widths = (64, 256, 256)
    batch_size = 2000
    learning_rate = 0.24  # of the filters
    others = 10.0  # so many times as much for whatever else is trained
    margin = 0.5  # between the probabilities of the two best classes, below which there is a second look

    def data(self):
        """Training and test images."""
        return read("train"), read("test")

    def model(self):
        """The net, whitened for the training images."""
        return Net(read("train").images, self.widths, int(read("train").labels.max()) + 1)

    def optimizer(self, parameters, lr):
        """Muon for filters, plain momentum for whatever else is trained."""
        filters = [p for p in parameters if p.dim() == 4 and p.requires_grad]
        rest = {"params": [p for p in parameters if p.dim() != 4], "lr": self.others * lr}
        return Muon([{"params": filters, "momentum": 0.6, "orthogonal": True}, rest], lr=lr)

    def schedule(self, optimizer, steps_per_epoch, epochs):
        """Up in a straight line over the first fifth of all steps, then down to nearly nothing."""
        whole = steps_per_epoch * epochs
        return LambdaLR(optimizer, lambda step: min((step + 1) / (0.2 * whole + 1), max(1 - step / whole, 0) / 0.8))

    def loss(self, model, batch):
        """Cross-entropy against smoothed labels, and the accuracy."""
        images, labels, numbers = batch
        scores = model(images, numbers)
        right = (scores.argmax(dim=1) == labels).float().mean()
        return F.cross_entropy(scores, labels, label_smoothing=0.2), right

    def evaluate(self, model, batches):
        """Accuracy, with a second look at uncertain images alone; laptime shows its seconds as those of evaluation.

        Where the two best classes are nearly level the scores of mirrored and moved copies are averaged in.
        """
        seen = []
        for images, truth, _ in batches:
            given = model(images).float()
            best = given.softmax(dim=1).topk(2, dim=1).values
            unsure = best[:, 0] - best[:, 1] < self.margin
            seen.append((given, truth, unsure, images[unsure]))
        scores, labels, unsure, images = (torch.cat(part) for part in zip(*seen, strict=True))
        if len(images):  # those of all batches together, so that a GPU has full ones again
            scores[unsure] = torch.cat([self.second_look(model, some) for some in images.split(self.batch_size)])
        return (scores.argmax(dim=1) == labels).float().mean()

    @staticmethod
    def second_look(model, images):
        """Mean scores of an image and its mirror image, each in place and moved by a pixel to either side."""
        none = torch.zeros(len(images), dtype=torch.long, device=images.device)
        views = [moved(images, none + by, none + by, none + mirror) for by in (0, -1, 1) for mirror in (0, 1)]
        return torch.stack([model(view).float() for view in views]).mean(dim=0)


class Small(Speedrun):
    """The same for a CPU: a twentieth of the parameters."""

    name = f"{Speedrun.name}-small"
    widths = (24, 48, 64)
    batch_size = 500


workload = Speedrun
