"""What a trained model says of images (`laptime.predictions/1`)."""

from __future__ import annotations

from pydantic import Field

from laptime.records.base import Readable


class Guess(Readable):
    """A class and how sure the model is of it, from 0 to 1."""

    name: str
    probability: float


class Found(Readable):
    """A box on an image: the class of what is in it, how sure the model is, from 0 to 1, and its sides.

    The sides are in pixels of the image as a viewer shows it, from the left and the top.
    """

    name: str
    score: float
    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Prediction(Readable):
    """One image.

    Attributes:
        guesses: the likeliest classes, the first is the answer; none of a detector's.
        boxes: what a detector finds, the surest first; None of a classifier's.
        drawn: the file in which they are drawn on the image, where that was asked for.
    """

    file: str
    guesses: tuple[Guess, ...] = ()
    boxes: tuple[Found, ...] | None = None
    drawn: str | None = None


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
