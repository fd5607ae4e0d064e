"""Plan, run, publish: what the command line and the flows share. Never reaches torch."""

from __future__ import annotations

from collections.abc import Callable

from laptime.devices import choose_device
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.request import (
    LadderRequest,
    check_out,
    check_variant,
    check_weights,
    fitted_preset,
    make_request,
    settled_preset,
    tracking_uri,
)
from laptime.ladder.run import Ladder, Turn, open_ladder
from laptime.ladder.single import run_single
from laptime.places import Places
from laptime.spec import DataSpec
from laptime.tracking import check_uri
from laptime.variants import resolve

__all__ = [
    "Ladder",
    "LadderRequest",
    "Turn",
    "make_request",
    "open_ladder",
    "prepare_data",
    "run_single",
    "settled_preset",
]


def prepare_data(request: LadderRequest, places: Places, say: Callable[[str], None]) -> DataSpec:
    """Checks the request as far as that costs nothing, then makes its data stand ready in the local store."""
    settled_preset(request)
    check_out(request, "ladder.json")
    choose_device(request.device)
    check_uri(tracking_uri(request, places))
    check_weights(request.weights)
    for name in request.variants or ():
        check_variant(request, resolve(name))
    data = fetch_data(request.workload, request.data, places, in_words(say))
    fitted_preset(request, data)
    return data
