"""Stage model: a detector's regions pooled as weighted sums of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torchvision.ops import MultiScaleRoIAlign
from torchvision.ops.poolers import _setup_scales

from laptime.optimizations.base import Options, Recipe
from laptime.values.copies import copy_of


def gathered_rois(recipe: Recipe, options: Options) -> Recipe:
    """Pools a detector's regions by `GatheredRoIAlign` instead of torchvision's kernel, which runs on one core."""
    model = copy_of(recipe.model)
    pools = [
        (module, name, child)
        for module in model.modules()
        for name, child in module.named_children()
        if _gatherable(child)
    ]
    for module, name, pool in pools:
        setattr(module, name, GatheredRoIAlign(pool))
    note = f"{len(pools)} RoIAlign over sums of rows"
    return replace(recipe, model=model, notes=(*recipe.notes, note))


def _gatherable(module: Any) -> bool:
    # Below 1 the number of samples would differ by region.
    return type(module) is MultiScaleRoIAlign and module.sampling_ratio > 0


class GatheredRoIAlign(MultiScaleRoIAlign):  # type: ignore[misc]
    """RoIAlign (He et al. 2017, arXiv:1703.06870) as one embedding bag over the pixels of all levels.

    A cell of a region's grid is the mean of bilinear samples, each of four pixels: a sum of rows [channels] of the maps
    in NHWC, with weights that are known beforehand. `embedding_bag` sums rows on all cores, forward and backward, where
    torchvision's kernel for the CPU adds single values on one.
    """

    scales: list[float] | None
    map_levels: Callable[[list[Tensor]], Tensor]

    def __init__(self, pool: MultiScaleRoIAlign) -> None:
        super().__init__(
            pool.featmap_names,
            pool.output_size,
            pool.sampling_ratio,
            canonical_scale=pool.canonical_scale,
            canonical_level=pool.canonical_level,
        )

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]) -> Tensor:
        """As `MultiScaleRoIAlign`: maps [images, channels, H, W] by name, boxes [N, 4] by image.

        Half precision is summed in float32, as torchvision does.
        """
        maps = [values for name, values in x.items() if name in self.featmap_names]
        if self.scales is None:
            self.scales, self.map_levels = _setup_scales(maps, image_shapes, self.canonical_scale, self.canonical_level)
        rows = torch.cat([values.permute(0, 2, 3, 1).flatten(0, 2) for values in maps])
        summed = rows if rows.dtype is torch.float64 else rows.float()
        indices, weights = self._cells(maps, boxes)
        found = F.embedding_bag(indices, summed, mode="sum", per_sample_weights=weights.to(summed.dtype))
        grid = (sum(map(len, boxes)), *self.output_size)
        pooled: Tensor = found.unflatten(0, grid).permute(0, 3, 1, 2).to(maps[0].dtype)
        return pooled

    def _cells(self, maps: list[Tensor], boxes: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The rows of each cell and their weights [all N * cells, pixels of a cell]."""
        # Of a net that has diverged a box may be no number: it gets some row, and the loss tells.
        whole = torch.cat(boxes).detach().nan_to_num()
        whole = whole if whole.dtype is torch.float64 else whole.float()
        level = whole.new_zeros(len(whole), dtype=torch.int64)
        if len(maps) > 1:
            level = self.map_levels(boxes).clamp(0, len(maps) - 1)

        def of_level(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, device=whole.device)[level]

        sizes = [values.shape[-2:] for values in maps]
        pixels = [values.shape[0] * height * width for values, (height, width) in zip(maps, sizes, strict=True)]
        heights, widths = of_level([h for h, _ in sizes]), of_level([w for _, w in sizes])
        image = torch.repeat_interleave(
            torch.arange(len(boxes), device=whole.device), torch.tensor([len(b) for b in boxes], device=whole.device)
        )
        first = of_level([sum(pixels[:i]) for i in range(len(maps))]) + image * heights * widths
        left, top, right, bottom = (whole * of_level(self.scales or [])[:, None].to(whole.dtype)).unbind(1)
        y, of_y = _samples(top, bottom, self.output_size[0], heights, self.sampling_ratio)
        x, of_x = _samples(left, right, self.output_size[1], widths, self.sampling_ratio)
        inside = y[:, :, None, :, None] * widths[:, None, None, None, None] + x[:, None, :, None, :]
        indices = first[:, None, None, None, None] + inside
        weights = of_y[:, :, None, :, None] * of_x[:, None, :, None, :]
        return indices.flatten(3).flatten(0, 2), weights.flatten(3).flatten(0, 2)


def _samples(low: Tensor, high: Tensor, cells: int, size: Tensor, samples: int) -> tuple[Tensor, Tensor]:
    """Pixels along one axis and their weights within the mean [N, cells, 2 * samples].

    `low` and `high` are of each region [N] in pixels of its map, which has `size` of them [N]. A region is one pixel
    long at least. A sample that is more than a pixel outside counts nothing; others are drawn to the edge.
    """
    step = (high - low).clamp(min=1) / (cells * samples)
    at = low[:, None] + (torch.arange(cells * samples, device=low.device) + 0.5) * step[:, None]
    last = (size - 1)[:, None]
    outside = (at < -1) | (at > size[:, None])
    at = torch.minimum(at.clamp(min=0), last.to(at.dtype))
    near = at.floor().long()
    share = at - near
    taps = torch.stack([near, torch.minimum(near + 1, last)], dim=-1)
    weights = torch.stack([1 - share, share], dim=-1) * ~outside[..., None] / samples
    return tuple(t.unflatten(1, (cells, samples)).flatten(2) for t in (taps, weights))
