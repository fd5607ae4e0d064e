"""The ring of events, with a device whose pace a test sets."""

import pytest
import torch

from laptime.measure.breakdown import device_steps_ms
from laptime.measure.device_marks import EventRing, device_marks


class Device:
    """Time passes as work is launched; what was launched is done when the test says so."""

    def __init__(self) -> None:
        self.launched_ms = self.done_ms = 0.0
        self.made = 0

    def work(self, milliseconds: float) -> None:
        self.launched_ms += milliseconds

    def catch_up(self) -> None:
        self.done_ms = self.launched_ms

    def event(self) -> "Event":
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at = device, None

    def record(self) -> None:
        self.at = self.device.launched_ms

    def query(self) -> bool:
        return self.at <= self.device.done_ms

    def elapsed_time(self, end: "Event") -> float:
        assert max(self.at, end.at) <= self.device.done_ms, "read before the device was there"
        return end.at - self.at


def step(device: Device, ring: EventRing, **parts: float) -> None:
    for part, duration in parts.items():
        device.work(duration)
        ring.mark(part)
    device.work(1)
    ring.mark("rest")
    ring.end_step()


@pytest.mark.parametrize("behind", [False, True])
def test_steps_are_read_whenever_the_device_has_passed_them(behind):
    device = Device()
    ring = EventRing(device.event, events=64)
    ring.start()
    for number in range(10):
        step(device, ring, data=number, forward=10 + number)
        if not behind:
            device.catch_up()
    device.catch_up()
    found = ring.steps_ms()
    # Without the first step, which waits for the first batch.
    assert found["data"] == [float(n) for n in range(1, 10)]
    assert found["forward"] == [10.0 + n for n in range(1, 10)]
    assert found["rest"] == [1.0] * 9
    assert device.made == 64


def test_a_step_s_parts_are_its_way_from_border_to_border():
    device = Device()
    ring = EventRing(device.event, events=64)
    ring.start()
    for number in range(5):
        step(device, ring, data=number, **{"copy": 2} if number % 2 else {}, forward=10 + number)
    device.catch_up()
    # Parts that only some steps have, and the host never waited: the steps are the device's all the same.
    assert device_steps_ms(ring.steps_ms()) == [15.0, 15.0, 19.0, 19.0]


def test_steps_that_find_no_room_are_left_out_and_nothing_is_waited_for():
    device = Device()
    ring = EventRing(device.event, events=10)
    ring.start()
    for number in range(6):
        step(device, ring, data=1, forward=10 * number)
    device.catch_up()
    for number in range(6, 40):
        step(device, ring, data=1, forward=10 * number)
        device.catch_up()
    found = ring.steps_ms()
    # The first stands apart, two more fit; the sixth at the latest sees that the device has caught up.
    assert found["forward"][:2] == [10.0, 20.0]
    assert found["forward"][-33:] == [10.0 * n for n in range(7, 40)]
    assert set(found["data"]) == {1.0}


def test_a_new_epoch_forgets_the_old_one():
    device = Device()
    ring = EventRing(device.event, events=16)
    for _ in range(3):
        ring.start()
        for _ in range(4):
            step(device, ring, workers=2, data=3)
        device.catch_up()
    assert ring.steps_ms() == {"data": [5.0] * 3, "rest": [1.0] * 3}


def test_a_step_of_more_marks_than_the_ring_has_is_left_out():
    device = Device()
    ring = EventRing(device.event, events=4)
    ring.start()
    for _ in range(3):
        step(device, ring, **{f"part {n}": 1 for n in range(9)})
        device.catch_up()
    assert ring.steps_ms() == {}


def test_a_cpu_has_no_clock_of_its_own():
    assert device_marks(torch.device("cpu")) is None


@pytest.mark.gpu
def test_real_events_measure_real_work():
    ring = device_marks(torch.device("cuda"))
    big = torch.randn(2048, 2048, device="cuda")
    ring.start()
    for _ in range(100):
        ring.mark("data")
        for _ in range(5):
            big @ big
        ring.mark("forward")
        ring.mark("rest")
        ring.end_step()
    torch.cuda.synchronize()
    found = ring.steps_ms()
    assert 0 < len(found["forward"]) <= 99
    assert min(found["forward"]) > max(0.0, sorted(found["rest"])[50])
