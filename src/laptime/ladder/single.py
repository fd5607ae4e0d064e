"""One variant alone: no comparison, nothing published."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laptime.catalogue import DEVICES
from laptime.devices import EMULATED, choose_device, hopeless_here
from laptime.errors import UsageError
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.plan import rungs_refused
from laptime.ladder.request import LadderRequest, check_out, check_variant, check_weights, make_spec
from laptime.launchers import launch, ranks_there
from laptime.launchers.base import Hooks
from laptime.places import Places
from laptime.records import RunRecord
from laptime.variants import Variant, resolve, with_options

Say = Callable[[str], None]


def chosen_variant(request: LadderRequest, settings: tuple[str, ...]) -> Variant:
    """The one variant that a request names, with its options set.

    Raises:
        UsageError: none or several are named, or an option does not exist.
    """
    return with_options(resolve(variant_name(request), workload=request.workload), settings)


def variant_name(request: LadderRequest) -> str:
    """The name of the one variant; raises UsageError where none or several are named."""
    names = request.variants or ()
    if len(names) != 1:
        raise UsageError(f"run takes one variant, not {len(names)}: use laptime optimize --variants for several.")
    return names[0]


def run_single(
    request: LadderRequest,
    settings: tuple[str, ...],
    places: Places,
    told: tuple[Say, Callable[[dict[str, Any]], None]],
    bare: bool = False,
    checkpoints: str | None = None,
) -> tuple[RunRecord, Path]:
    """Runs one variant.

    Args:
        request: names the variant.
        settings: `optimization.option=value` each.
        places: where data and runs stand.
        told: takes sentences, and the worker's progress events.
        bare: leaves out the check, the model and the profile, for repeated timing of what was checked before.
        checkpoints: where the run's checkpoints stand, from which it goes on; None for none.

    Returns:
        The record and the folder that holds it.
    """
    say, on_event = told
    variant = chosen_variant(request, settings)
    check_out(request, "record.json")
    check_weights(request.weights, request.workload)
    here = ranks_there(request.launcher) is None
    if here:
        choose_device(DEVICES[variant.device])
    check_variant(request, variant)
    data = fetch_data(request.workload, request.data, places, in_words(say))
    away = rungs_refused(variant.device, request.workload, data)
    hopeless = _hopeless(variant) if here else ()
    if hopeless:
        say(f"{variant.name} runs without {' and '.join(hopeless)}: {EMULATED}.")
    if away or hopeless:
        variant = with_options(resolve(variant_name(request), (*away, *hopeless), request.workload), settings)
    spec = make_spec(request, variant, data, 0).model_copy(update={"checkpoints": checkpoints})
    if bare:
        spec = spec.model_copy(update={"check": False, "save_model": False, "profile": "none"})
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-run-{secrets.token_hex(2)}"
    folder = Path(request.out).resolve() if request.out else places.runs / name
    return launch(request.launcher, spec, folder, Hooks(on_event=on_event, say=say)), folder


def _hopeless(variant: Variant) -> tuple[str, ...]:
    return hopeless_here(variant.name, [o.name for o in variant.optimizations], DEVICES[variant.device])
