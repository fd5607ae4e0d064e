"""From a GPU's trace, written by hand, to the finding with its line and gain; and none where it is put right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.trace.trace_builder import BACKWARD, SIDE, Trace

from laptime.advice import advise
from laptime.records import Finding
from laptime.trace import summarize

_STEP_US, _STEPS = 1000.0, 10
_IMAGES = {"Input Dims": [[64, 3, 32, 32], [], []]}
Part = Callable[[Trace, float], None]


def copied(kind: str, beside: bool = False) -> Part:
    """A batch's copy of 400 us, before the step's kernels or beside them."""

    def add(trace: Trace, at: float) -> None:
        move = trace.op("aten::to", at + 2, 20, **_IMAGES)
        place = {"stream": SIDE} if beside else {}
        begin = at + (500 if beside else 10)
        trace.launch(
            move, at + 5, begin, 400, f"Memcpy HtoD ({kind} -> Device)", cat="gpu_memcpy", bytes=1 << 20, **place
        )

    return add


def filled(trace: Trace, at: float) -> None:
    """A tensor that the host fills and copies in each step."""
    trace.op("aten::zeros", at + 1, 4, **{"Concrete Inputs": ["[64, 8]", ""], "Input Dims": [[], []]})
    move = trace.op("aten::to", at + 6, 20, **{"Input Dims": [[64, 8], [], []]})
    trace.launch(move, at + 8, at + 10, 150, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=1 << 20)


def computed(begin: float = 210, end: float = 990, kernels: int = 4, name: str = "sm90_gemm") -> Part:
    """Kernels of a convolution one right after another."""

    def add(trace: Trace, at: float) -> None:
        dims = {"Input Dims": [[64, 64, 32, 32], [64, 64, 3, 3]]}
        each = (end - begin) / kernels
        for number in range(kernels):
            start = at + begin + number * each
            conv = trace.op("aten::cudnn_convolution", start - 12, 10, **dims)
            trace.launch(conv, start - 10, start, each, name)

    return add


def short(trace: Trace, at: float) -> None:
    """Forty kernels of 4 us, which the host launches every 20 us."""
    for number in range(40):
        start = at + 200 + 20 * number
        small = trace.op("aten::mul", start - 12, 10, **{"Input Dims": [[8], [8]]})
        trace.launch(small, start - 10, start, 4, "elementwise_kernel")


def read(trace: Trace, at: float) -> None:
    """A value that the host waits for, and a device without work until the host has gone on."""
    trace.line("<built-in method item of Tensor object at 0x7f00>", at + 460, 330, "train.py:31")
    trace.op("aten::item", at + 461, 328)
    trace.op("aten::_local_scalar_dense", at + 462, 326)
    trace.wait(at + 465, 320)


def reduced(exposed: bool, nelems: int = 1 << 22, calls: int = 1) -> Part:
    """Collectives of 400 us in all, after the kernels or beside them."""

    def add(trace: Trace, at: float) -> None:
        trace.meta["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 2}
        each = 400 / calls
        for number in range(calls):
            begin = at + (590 if exposed else 300) + number * each
            ring = {"stream": SIDE, "Collective name": "allreduce", "In msg nelems": nelems, "dtype": "Float"}
            trace.device("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin, each, **ring)

    return add


def elementwise(count: int) -> Part:
    """Element-wise operators of the backward pass, 10 us each."""

    def add(trace: Trace, at: float) -> None:
        for number in range(count):
            start = at + 210 + 10 * number
            add_ = trace.op("aten::add_", start - 9, 8, BACKWARD, **{"Input Dims": [[64, 64], [64, 64]]})
            trace.launch(add_, start - 8, start, 10, "elementwise_kernel", tid=BACKWARD)

    return add


def fetched(trace: Trace, at: float) -> None:
    """A batch that is there at once."""
    trace.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 2)


WHOLE = computed()
CASES: dict[str, tuple[tuple[Part, ...], tuple[Part, ...], tuple[float, float]]] = {
    # What fires, what must not, and milliseconds that should go.
    "pinned-copies": (
        (copied("Pageable"), computed(420)),
        (copied("Pinned", beside=True), WHOLE),
        (0.16, 0.4),
    ),
    "created-on-cpu": ((filled, WHOLE), (copied("Pinned", beside=True), WHOLE), (0.1, 0.15)),
    "synchronisation": ((computed(end=700, kernels=2), read), (computed(end=700),), (0.16, 0.32)),
    "launch-bound": ((fetched, short), (fetched, WHOLE), (0.4, 0.85)),
    "communication": ((computed(end=590), reduced(True)), (WHOLE, reduced(False)), (0.12, 0.4)),
    "small-messages": (
        (computed(end=590), reduced(True, 1 << 10, 10)),
        (computed(end=590), reduced(True)),
        (0.12, 0.36),
    ),
    "channels-last": (
        (computed(end=600), computed(600, 900, 2, "void nchwToNhwcKernel<float>")),
        (WHOLE,),
        (0.2, 0.5),
    ),
    "compile": ((elementwise(60), computed(820)), (WHOLE,), (0.15, 0.6)),
}


def findings(parts: tuple[Part, ...], folder: Path) -> dict[str, Finding]:
    trace = Trace()
    for number in range(_STEPS):
        at = number * _STEP_US
        trace.step(number + 3, at, _STEP_US)
        trace.line("train.py(12): main", at, _STEP_US)
        for part in parts:
            part(trace, at)
    return {f.id: f for f in advise(None, summarize(trace.write(folder / "gpu.json"))).findings}


@pytest.mark.parametrize("name", CASES)
def test_a_trace_with_it_has_the_finding_and_its_gain(name: str, tmp_path: Path) -> None:
    fires, _, (least, most) = CASES[name]
    found = findings(fires, tmp_path)
    assert name in found
    expected = [found[name].step_ms_now - ms for ms in found[name].step_ms_expected]
    assert least <= min(expected) + 1e-9
    assert max(expected) <= most + 1e-9
    assert any(c.isdigit() for text in found[name].evidence for c in text)


@pytest.mark.parametrize("name", CASES)
def test_put_right_it_has_none(name: str, tmp_path: Path) -> None:
    assert name not in findings(CASES[name][1], tmp_path)


def test_one_remedy_is_one_finding_on_a_trace_too(tmp_path: Path) -> None:
    found = findings(CASES["channels-last"][0], tmp_path)
    assert not [name for name in found if name.startswith("hot-operator")]
    assert any(text.startswith("hot-operator/") for text in found["channels-last"].evidence)


@pytest.mark.parametrize(
    ("asks", "scaled_at", "code"),
    [
        ("aten::item", None, "detach"),
        ("aten::nonzero", None, "torch.where"),
        ("aten::item", 440, "fused=True"),
        ("aten::item", 300, "detach"),  # the scaler is through with its step, and the loss is read
    ],
)
def test_waits_for_a_size_and_of_a_scaler_have_remedies_of_their_own(
    asks: str, scaled_at: int | None, code: str, tmp_path: Path
) -> None:
    def asked(trace: Trace, at: float) -> None:
        if scaled_at is not None:
            trace.op("aten::_amp_foreach_non_finite_check_and_unscale_", at + scaled_at, 5)
            trace.op("aten::_amp_update_scale_", at + scaled_at + 365 * (scaled_at == 440) + 10, 5)
        trace.op(asks, at + 461, 328)
        trace.wait(at + 465, 320)

    assert code in findings((computed(end=700, kernels=2), asked), tmp_path)["synchronisation"].command


def test_what_the_host_does_after_a_short_wait_does_not_go_with_it(tmp_path: Path) -> None:
    """Such as fetching a batch that the trace does not mark."""

    def asked(trace: Trace, at: float) -> None:
        trace.op("aten::item", at + 301, 40)
        trace.wait(at + 305, 30)

    found = findings((computed(end=300, kernels=1), asked), tmp_path)
    assert "synchronisation" not in found


def test_several_devices_in_one_process_are_told(tmp_path: Path) -> None:
    def other(trace: Trace, at: float) -> None:
        trace.device("kernel", "gemm", at + 300, 100)
        trace.events[-1]["pid"] = 1

    trace = Trace()
    trace.step(3, 0, 1000)
    WHOLE(trace, 0)
    other(trace, 0)
    (said,) = (n for n in advise(None, summarize(trace.write(tmp_path / "t.json"))).notices if "DataParallel" in n)
    assert said.startswith("2 devices work in this process")


@pytest.mark.parametrize(("name", "line"), [("synchronisation", "train.py:31"), ("pinned-copies", "train.py:12")])
def test_it_names_the_line(name: str, line: str, tmp_path: Path) -> None:
    assert findings(CASES[name][0], tmp_path)[name].lines == (line,)
