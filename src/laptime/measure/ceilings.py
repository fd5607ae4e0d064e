"""The best rates that this machine reaches: micro-benchmarks of matrix product, convolution and copy."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from laptime.measure.machine import load_now
from laptime.measure.memory import free_bytes
from laptime.measure.passes import wait_for
from laptime.records import Ceilings

_ROUNDS = 4
_TOO_LONG_S = 1.0
# Large enough for a few milliseconds on a device: batch, channels and size of the convolution's maps.
_GEMM = {"cpu": 1536, "cuda": 8192}
_SMALL_PART = 8
_CONV = {"cpu": (64, 128, 16), "cuda": (2048, 256, 16)}
_COPY_MIB = {"cpu": 128, "cuda": 2048}
# Of what is free: source and target take half, as on a small slice of a GPU, or on one that others use.
_COPY_SHARE = 0.25


def measure_ceilings(device: torch.device) -> Ceilings:
    """Measures in a few seconds; the best of a few rounds, since others on the machine only ever take away."""
    load = load_now()  # before they add to it
    return Ceilings(
        load=load,
        gemm_fp32_gflops=_gemm(device, torch.float32),
        gemm_bf16_gflops=_gemm(device, torch.bfloat16),
        conv_fp32_gflops=_conv(device, torch.float32),
        conv_bf16_gflops=_conv(device, torch.bfloat16),
        copy_gb_s=_copy(device),
    )


def best_s(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest round after one that doesn't count; waits for the device."""
    times = []
    for _ in range(_ROUNDS + 1):
        begin = time.perf_counter()
        work()
        wait_for(device)
        times.append(time.perf_counter() - begin)
        if times[-1] > _TOO_LONG_S:
            break  # bf16 without instructions for it can take a hundred times as long: one round says enough
    return min(times[1:] or times)


def _gemm(device: torch.device, dtype: torch.dtype) -> float:
    side = _GEMM[device.type]
    small = _gemm_of(side // _SMALL_PART, device, dtype)
    # Without instructions for bf16 one large product takes ten seconds and more, and is no faster a flop.
    return small if 2 * side**3 / small / 1e9 > _TOO_LONG_S else _gemm_of(side, device, dtype)


def _gemm_of(side: int, device: torch.device, dtype: torch.dtype) -> float:
    a = torch.randn(side, side, device=device, dtype=dtype)
    return 2 * side**3 / best_s(lambda: a @ a, device) / 1e9


def _conv(device: torch.device, dtype: torch.dtype) -> float:
    batch, channels, size = _CONV[device.type]
    images = torch.randn(batch, channels, size, size, device=device, dtype=dtype)
    kernel = torch.randn(channels, channels, 3, 3, device=device, dtype=dtype)
    images, kernel = (t.to(memory_format=torch.channels_last) for t in (images, kernel))

    def convolve() -> Tensor:
        return torch.nn.functional.conv2d(images, kernel, padding=1)

    return 2 * batch * channels * channels * 9 * size * size / best_s(convolve, device) / 1e9


def _copy(device: torch.device) -> float:
    size = min(_COPY_MIB[device.type] * 2**20, int(_COPY_SHARE * free_bytes(device)))
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / best_s(lambda: target.copy_(source), device) / 1e9
