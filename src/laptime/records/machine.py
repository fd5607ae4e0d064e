"""What was trained on."""

from __future__ import annotations

from collections import Counter

from laptime.records.base import Readable

# A run on all cores that has just ended leaves their number as load; anything above it is somebody else's.
MOST_LOAD = 1.25


class Ceilings(Readable):
    """The best rates that this machine reached in micro-benchmarks; None where not measured.

    Attributes:
        load: of the minute before they were measured; None where it is of more cores than may be used.
    """

    gemm_fp32_gflops: float | None = None
    gemm_bf16_gflops: float | None = None
    conv_fp32_gflops: float | None = None
    conv_bf16_gflops: float | None = None
    copy_gb_s: float | None = None
    load: float | None = None

    def best(self, precision: str) -> float | None:
        """The ceiling in GFLOP/s for a precision (`fp32`, `bf16` or `fp16`); matrix units run both short ones alike."""
        rates = (
            (self.gemm_bf16_gflops, self.conv_bf16_gflops)
            if precision in ("bf16", "fp16")
            else (self.gemm_fp32_gflops, self.conv_fp32_gflops)
        )
        known = [r for r in rates if r is not None]
        return max(known) if known else None


def busy(load: float | None, cores: int | None) -> bool:
    """Whether others used a machine, as far as its load tells."""
    return load is not None and bool(cores) and load > MOST_LOAD * (cores or 0)


class Machine(Readable):
    """What was trained on.

    Attributes:
        fingerprint: digest of the fields below that decide speed, never of a host name.
        cores, image: those allowed by affinity and quota; that of the container, by LAPTIME_IMAGE.
        variables: of the environment, that decide speed and are set, as `NAME=value`.
    """

    fingerprint: str = ""
    cpu: str = ""
    cores: int = 0
    memory_gib: int = 0
    gpus: tuple[str, ...] = ()
    os: str = ""
    python: str = ""
    torch: str = ""
    torchvision: str = ""
    cuda: str | None = None
    instruction_sets: tuple[str, ...] = ()
    ceilings: Ceilings = Ceilings()
    load_before: float | None = None
    image: str | None = None
    variables: tuple[str, ...] = ()

    @property
    def gpu_names(self) -> str:
        """Its GPUs in words, equal ones once: `4 x NVIDIA H100`; empty without one."""
        counted = Counter(self.gpus)
        return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counted.items())
