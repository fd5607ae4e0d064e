"""Before a ladder: its request is checked as far as that costs nothing, and its data made ready."""

from __future__ import annotations

from collections.abc import Callable

from laptime.devices import choose_device, lock_name
from laptime.ladder.data import fetch_data, in_words, look_at_data
from laptime.ladder.plan import require_device, require_fit, rungs_refused
from laptime.ladder.request import (
    LadderRequest,
    check_out,
    check_variant,
    check_weights,
    fitted_preset,
    settled_preset,
    tracking_uri,
)
from laptime.ladder.silence import Silence
from laptime.launchers.lock import require_lock
from laptime.places import Places
from laptime.spec import DataSpec
from laptime.variants import resolve


def check_request(request: LadderRequest, places: Places) -> None:
    """Refuses what no ladder could begin with, as far as that costs nothing.

    Raises:
        LaptimeError: an option, the output folder, a device's lock or a variant that can't be.
    """
    settled_preset(request)
    check_out(request, "ladder.json")
    device = choose_device(request.device)
    require_lock(lock_name(device))
    tracking_uri(request, places)
    check_weights(request.weights, request.workload)
    for name in request.variants or ():
        variant = resolve(name, workload=request.workload)
        require_device(variant, device)
        check_variant(request, variant)


def check_plan(request: LadderRequest, places: Places) -> tuple[int, int] | None:
    """Holds a plan that is not run to what a ladder needs to begin, the place of its data too; raises as they do.

    Returns:
        How many images there are to train and to test on, where that is known.
    """
    check_request(request, places)
    return look_at_data(request.workload, request.data, places)


def prepare_data(request: LadderRequest, places: Places, say: Callable[[str], None]) -> DataSpec:
    """Checks the request as far as that costs nothing, then makes its data stand ready in the local store."""
    check_request(request, places)
    device = choose_device(request.device)
    # On a CPU the probe takes such steps.
    halved_on = device if device == "cuda" else ""
    data = fetch_data(request.workload, request.data, places, in_words(say), halved_on, Silence(say))
    fitted_preset(request, data)
    for name in request.variants or ():
        refused = rungs_refused(resolve(name, workload=request.workload).device, request.workload, data)
        variant = resolve(name, refused, request.workload)
        check_variant(request, variant, data)
        require_fit(variant, request.workload, data)
    return data
