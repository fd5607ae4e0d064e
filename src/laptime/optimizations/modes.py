"""Number modes of a process, which some optimizations choose."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Modes:
    """Number modes of the process on NVIDIA GPUs, as torch has them by default.

    Attributes:
        matmul_tf32, cudnn_tf32: products and convolutions of fp32 tensors with 10 bits of mantissa.
        benchmark: cuDNN times its kernels for each new shape.
    """

    matmul_tf32: bool = False
    cudnn_tf32: bool = True
    benchmark: bool = False

    def apply(self) -> None:
        """Sets them in this process."""
        torch.set_float32_matmul_precision("high" if self.matmul_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = self.cudnn_tf32
        torch.backends.cudnn.benchmark = self.benchmark


AS_TORCH = Modes()
