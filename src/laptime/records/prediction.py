"""What a trained model says of images (`laptime.predictions/1`)."""

from __future__ import annotations

from pydantic import Field

from laptime.records.base import Readable


class Guess(Readable):
    """A class and how sure the model is of it, from 0 to 1."""

    name: str
    probability: float


class Prediction(Readable):
    """One image: the likeliest classes, the first is the answer."""

    file: str
    guesses: tuple[Guess, ...]


class Refused(Readable):
    """An image without a prediction, and why in one sentence."""

    file: str
    reason: str


class Predictions(Readable):
    """All images that were asked about, in their order.

    Attributes:
        model: which one, in words.
        device: where it ran.
    """

    schema_: str = Field(default="laptime.predictions/1", alias="schema")
    model: str
    device: str
    predictions: tuple[Prediction, ...] = ()
    refused: tuple[Refused, ...] = ()
