"""One variant alone: what of it is run, and where."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from laptime.catalogue import DEVICES, LADDERS, rung_spec
from laptime.devices import EMULATED, choose_device, hopeless_here, lock_name
from laptime.errors import DataError, UsageError, shorten
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.plan import reasons_against, require_fit, rungs_refused
from laptime.ladder.request import LadderRequest, check_out, check_variant, check_weights, make_spec
from laptime.ladder.silence import Silence
from laptime.launchers import launch, ranks_there
from laptime.launchers.base import RECORD, Hooks
from laptime.launchers.lock import folder_alone, require_lock
from laptime.places import Places, expanded
from laptime.records import RunRecord, read_record
from laptime.spec import RunSpec
from laptime.variants import Variant, resolve, with_options

Say = Callable[[str], None]


@dataclass(frozen=True)
class Single:
    """One variant alone, as it will be run.

    Attributes:
        id: of this start, unique and sortable by time.
        folder: of spec, record and log.
        launcher: as it was asked for.
    """

    id: str
    variant: Variant
    spec: RunSpec
    folder: Path
    launcher: str

    def bare(self) -> Single:
        """Without check, model and profile, for repeated timing of what was checked before."""
        return replace(self, spec=self.spec.model_copy(update={"check": False, "save_model": False, "profile": "none"}))

    def run(self, hooks: Hooks) -> RunRecord:
        """Trains it; its record also stands in the folder."""
        with folder_alone(self.folder):
            return launch(self.launcher, self.spec, self.folder, hooks)


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


def plan_single(
    request: LadderRequest, settings: tuple[str, ...], places: Places, say: Say, checkpoints: str | None = None
) -> Single:
    """Checks what is asked for, makes its data stand ready and says what will be run.

    Args:
        request: names the variant.
        settings: `optimization.option=value` each.
        places: where data and runs stand.
        say: takes sentences.
        checkpoints: where the run's checkpoints stand, from which it goes on; None for none.

    Raises:
        LaptimeError: it can't be run, here or at all.
    """
    variant = chosen_variant(request, settings)
    if not (checkpoints and _broken_off(request.out)):
        check_out(request, "record.json")
    if request.out and Path(request.out).is_dir():
        with folder_alone(Path(request.out)):
            pass
    check_weights(request.weights, request.workload)
    if checkpoints and expanded(checkpoints).is_file():
        raise UsageError(f"--checkpoints {shorten(checkpoints)!r} is a file: give a folder or s3://bucket/prefix.")
    here = ranks_there(request.launcher) is None
    if here:
        device = choose_device(DEVICES[variant.device], "take a variant of the CPU (laptime list variants)")
        require_lock(lock_name(device))
    check_variant(request, variant)
    hopeless = _hopeless(variant) if here else ()
    halved_on = "" if hopeless else _halved_on(variant, here)
    data = fetch_data(request.workload, request.data, places, in_words(say), halved_on, Silence(say))
    away = rungs_refused(variant.device, request.workload, data)
    if hopeless:
        say(f"{variant.name} runs without {' and '.join(hopeless)}: {EMULATED}.")
    if away or hopeless:
        whole, name = variant, variant_name(request)
        variant = with_options(resolve(name, (*away, *hopeless), request.workload), settings)
        _tell_unfit(whole, variant, reasons_against(request.workload, data), say)
    require_fit(variant, request.workload, data)
    spec = make_spec(request, variant, data, 0).model_copy(update={"checkpoints": checkpoints})
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-run-{secrets.token_hex(2)}"
    folder = Path(request.out).resolve() if request.out else places.runs / name
    return Single(name, variant, spec, folder, request.launcher)


def _halved_on(variant: Variant, here: bool) -> str:
    """Where a step in bf16 is to be tried, as a variant has it; a GPU of other machines can't be asked."""
    device = DEVICES[variant.device]
    halved = any(o.name == "bf16" for o in variant.optimizations)
    return device if halved and (here or device == "cpu") else ""


def _tell_unfit(whole: Variant, fitting: Variant, reasons: Mapping[str, str], say: Say) -> None:
    """Says what a variant's name stands for and its training can't have; never silently.

    Raises:
        UsageError: it is the very rung that the variant is named after, so that nothing of it would be run.
    """
    gone = {o.name for o in whole.optimizations} - {o.name for o in fitting.optimizations}
    unfit = {name: why for name, why in reasons.items() if name in gone}
    named = whole.name.partition("+")[0].removeprefix(f"{whole.device}-")
    own = rung_spec(named).name if named in LADDERS[DEVICES[whole.device]] else ""
    if own in unfit:
        raise UsageError(
            f"{whole.name} is not for this training: {unfit[own]}; name another variant (laptime list variants)."
        )
    for why in dict.fromkeys(unfit.values()):
        say(f"{whole.name} runs without {' and '.join(n for n in unfit if unfit[n] == why)}: {why}.")


def _broken_off(out: str | None) -> bool:
    """Whether a run that failed left its record here: typed again, it goes on and writes another."""
    if not out:
        return False
    try:
        return read_record(Path(out) / RECORD).status == "failed"
    except DataError:  # none, or cut off
        return False


def _hopeless(variant: Variant) -> tuple[str, ...]:
    return hopeless_here(variant.name, [o.name for o in variant.optimizations], DEVICES[variant.device])
