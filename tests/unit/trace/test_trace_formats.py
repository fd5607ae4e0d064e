"""Maps in two memory formats that meet in a step, by the strides in its trace."""

from pathlib import Path

import pytest
import torch
from torch import nn

from laptime.advice import advise
from laptime.optimizations.layout import spread_means
from laptime.records.trace import MIXED
from laptime.trace import summarize
from laptime.trace.operands import formats_of

MAP = [8, 64, 4, 4]
NCHW, NHWC, SPREAD = [1024, 16, 4, 1], [1024, 1, 256, 64], [64, 1, 0, 0]


@pytest.mark.parametrize(
    ("dims", "strides", "found"),
    [
        ([MAP, MAP, []], [NCHW, NHWC, []], MIXED),
        ([MAP, MAP], [NHWC, NHWC], ""),
        ([MAP, MAP], [NCHW, NCHW], ""),
        ([MAP, MAP], [NHWC, SPREAD], ""),
        # A slice of channels of a larger map, and a value a map, which is in both.
        ([MAP, MAP], [[2048, 1, 512, 128], NCHW], MIXED),
        ([MAP, [8, 64, 1, 1]], [NHWC, [64, 1, 1, 1]], ""),
        ([[8, 1, 4, 4], MAP], [[16, 16, 4, 1], NHWC], ""),
        ([[64], MAP], [[1], NHWC], ""),
        ([MAP], [], ""),
    ],
)
def test_formats_are_told_by_strides(dims, strides, found):
    assert formats_of(dims, strides) == found


class Squeezed(nn.Module):
    """A convolution with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.gate = nn.Conv2d(3, 16, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 16, 1)

    def forward(self, images):
        maps = self.conv(images)
        return maps * torch.sigmoid(self.gate(self.pool(maps)))


def recorded(folder: Path, net: nn.Module, layout: torch.memory_format, shapes: bool = True):
    images, path = torch.randn(8, 3, 32, 32).to(memory_format=layout), folder / "t.json"
    target = torch.ones(8, 16, 32, 32).to(memory_format=layout)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
        record_shapes=shapes,
        on_trace_ready=lambda p: p.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(3):
            net(images).backward(target)
            profiler.step()
    return summarize(path)


def test_torch_s_global_pool_brings_the_other_format_into_nhwc(tmp_path):
    net = Squeezed().to(memory_format=torch.channels_last)
    summary = recorded(tmp_path, net, torch.channels_last)
    met = [row for row in summary.operators if row.window == MIXED]
    assert {row.name for row in met} <= {"aten::add", "aten::add_"}
    assert summary.mixed_ms == pytest.approx(sum(row.self_ms for row in met))
    assert summary.mixed_ms > 0
    spread_means(net)
    assert recorded(tmp_path, net, torch.channels_last).mixed_ms == 0


def test_in_one_format_there_is_none_and_without_strides_nobody_knows(tmp_path):
    assert recorded(tmp_path, Squeezed(), torch.contiguous_format).mixed_ms == 0
    blind = recorded(tmp_path, Squeezed(), torch.contiguous_format, shapes=False)
    assert blind.mixed_ms is None
    (told,) = [w.reason for w in advise(None, blind).withheld if w.id == "mixed-formats"]
    assert "strides" in told
