"""Before a ladder: its request is checked as far as that costs nothing, and its data made ready."""

from __future__ import annotations

from collections.abc import Callable

from laptime.devices import choose_device, lock_name
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.plan import rungs_refused
from laptime.ladder.request import (
    LadderRequest,
    check_out,
    check_variant,
    check_weights,
    fitted_preset,
    settled_preset,
    tracking_uri,
)
from laptime.launchers.lock import require_lock
from laptime.places import Places
from laptime.spec import DataSpec
from laptime.variants import resolve


def prepare_data(request: LadderRequest, places: Places, say: Callable[[str], None]) -> DataSpec:
    """Checks the request as far as that costs nothing, then makes its data stand ready in the local store."""
    settled_preset(request)
    check_out(request, "ladder.json")
    require_lock(lock_name(choose_device(request.device)))
    tracking_uri(request, places)
    check_weights(request.weights, request.workload)
    for name in request.variants or ():
        check_variant(request, resolve(name, workload=request.workload))
    data = fetch_data(request.workload, request.data, places, in_words(say))
    fitted_preset(request, data)
    for name in request.variants or ():
        refused = rungs_refused(resolve(name, workload=request.workload).device, request.workload, data)
        check_variant(request, resolve(name, refused, request.workload), data)
    return data
