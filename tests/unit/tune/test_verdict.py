"""What pairs say of a change."""

import pytest

from laptime.tune.verdict import LEAST, MOST, verdict


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([0.5], None),
        ([1.01], None),
        ([1.03], "not faster"),
        ([0.9, 0.9], None),
        ([0.97, 1.05], "not faster"),
        ([0.9, 0.91, 0.9], "faster"),
        ([0.9, 0.5, 1.0], None),
        ([0.995, 0.997, 0.994], "faster"),  # little, and shown
        ([0.999, 0.98, 1.0], "not shown"),
        ([0.9, 0.5, 1.0, 0.9], None),
        ([0.9, 0.5, 1.0, 0.9, 1.2], "not shown"),
    ],
)
def test_a_verdict_rests_on_the_interval(ratios, expected):
    assert verdict(ratios) == expected


def test_there_is_a_verdict_after_the_last_pair():
    assert LEAST < MOST
    for value in (0.5, 0.98, 1.0, 1.02, 2.0):
        assert verdict([value * (1 + 0.05 * (-1) ** i) for i in range(MOST)]) is not None
