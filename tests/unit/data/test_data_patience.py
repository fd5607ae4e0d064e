"""A place that is away is asked again for a while."""

from __future__ import annotations

import pytest

from laptime.data.objects import patiently
from laptime.errors import DataError, UnreachableError


class Away:
    """A place that answers after some seconds of a clock of its own, or refuses."""

    def __init__(self, after: float, refusal: DataError | None = None) -> None:
        self.after, self.refusal = after, refusal
        self.now, self.pauses, self.said = 0.0, list[float](), list[str]()

    def ask(self) -> str:
        if self.now < self.after:
            raise UnreachableError("s3://b/x can't be reached.")
        if self.refusal is not None:
            raise self.refusal
        return "answer"

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)

    def answer(self, patience_s: float) -> str:
        return patiently(self.ask, patience_s, self.said.append, self.sleep, lambda: self.now)


def test_it_is_asked_again_after_longer_and_longer() -> None:
    place = Away(after=100)
    assert place.answer(200) == "answer"
    assert place.pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert place.said == ["s3://b/x can't be reached. Asking again for 200 s."]


def test_one_that_answers_is_asked_once() -> None:
    place = Away(after=0)
    assert place.answer(60) == "answer"
    assert (place.pauses, place.said) == ([], [])


def test_patience_ends() -> None:
    place = Away(after=1e9)
    with pytest.raises(UnreachableError, match="can't be reached"):
        place.answer(10)
    assert place.pauses == [1, 2, 4, 3]


def test_a_refusal_is_no_silence() -> None:
    place = Away(after=0, refusal=DataError("no such bucket"))
    with pytest.raises(DataError, match="no such bucket"):
        place.answer(60)
    assert place.pauses == []
