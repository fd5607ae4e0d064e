"""Before a ladder's first turn: the machine is probed, the rungs are planned, the journal is started."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from importlib.metadata import version

from laptime.catalogue import find_workload
from laptime.catalogue.own import with_findings
from laptime.compare.floor import quality_floor
from laptime.devices import choose_device, device_count
from laptime.errors import TrackingError, UsageError
from laptime.host.variables import slowing
from laptime.ladder.plan import Plan, make_plan, unfit, with_refusals
from laptime.ladder.probing import probe_slow_rungs
from laptime.ladder.ranks import with_parallel
from laptime.ladder.request import LadderRequest, fitted_preset, kept_request, tracking_uri
from laptime.ladder.run import Ladder, Say
from laptime.ladder.surroundings import commit, run_probe
from laptime.launchers import ranks_there
from laptime.launchers.base import ignore
from laptime.places import Places
from laptime.records import LadderRecord, ProbeRecord
from laptime.spec import DataSpec
from laptime.tracking.courier import Courier
from laptime.tracking.outage import Outage
from laptime.tracking.reach import require_answer
from laptime.tracking.sync import sync


def open_ladder(request: LadderRequest, data: DataSpec, places: Places, say: Say = ignore) -> Ladder:
    """Probes the machine, plans the ladder and starts its journal.

    Raises:
        UsageError: a variant, device or preset that does not exist here.
    """
    entry, preset = with_findings(find_workload(request.workload), data), fitted_preset(request, data)
    what = data.model_dump_json() if data.own else request.workload
    device = choose_device(request.device)
    # Refuses unknown names before seconds are spent.
    no_use = unfit(entry, device, preset.limit_train)
    planned = make_plan(device, preset, request.variants, ProbeRecord(refusals=no_use), entry.name)
    outage = catch_up(tracking_uri(request, places), places, say)
    say("Probing this machine (seconds; minutes where a step of the net takes seconds)")
    # Where variants are named, only what they need; but advice rests on what this machine gains, too.
    advised = not request.variants or request.profile == "full"
    wanted = None if advised else {o.name for v in planned.fixed for o in v.optimizations}
    probe = with_refusals(run_probe((what, device), places, say, wanted, preset.limit_train), data)
    probe = probe.model_copy(update={"refusals": probe.refusals | no_use})
    for text in slowing(probe.machine.variables, probe.machine.cores):
        say(f"NOTICE: {text}")
    if not request.variants:
        probe = probe_slow_rungs(probe, (what, device, preset), places, say, request.budget)
    plan = plan_of(request, data, device, probe)
    require_contender(request, plan)
    record = LadderRecord(
        id=f"{time.strftime('%Y%m%d-%H%M%S')}-{slug(entry.name)}-{secrets.token_hex(2)}",
        workload=entry.name,
        preset=request.preset,
        device=device,
        data=data,
        probe=probe,
        left_out=plan.left_out,
        epochs=preset.epochs,
        repeats=preset.repeats,
        limit_train=preset.limit_train,
        limit_test=preset.limit_test,
        seed=request.seed,
        quality=entry.quality,
        quality_floor=quality_floor(entry.name, len(data.classes), data.commonest),
        commit=commit(),
        laptime=version("laptime"),
        request=kept_request(request),
        started_at=time.time(),
    )
    ladder = Ladder(request, record, plan, places)
    ladder.start()
    return attended(ladder, say, outage)


def require_contender(request: LadderRequest, plan: Plan) -> None:
    """Refuses a ladder of variants that were named and can none of them be run: its baseline alone would be trained.

    Raises:
        UsageError: that is so, with the reasons.
    """
    contenders = set(request.variants or ()) - {plan.fixed[0].name}
    if contenders and len(plan.fixed) == 1 and not plan.parallel and plan.left_out:
        reasons = "; ".join(f"{left.variant}: {left.reason}" for left in plan.left_out)
        raise UsageError(f"none of the variants that were named can be run here ({reasons}): name others.")


def attended(ladder: Ladder, say: Say, outage: Outage) -> Ladder:
    """A ladder that has been started, with somebody to hear it and a courier."""
    assert ladder.journal is not None
    uri = tracking_uri(ladder.request, ladder.places)
    ladder.say, ladder.courier = say, Courier(ladder.journal, (uri, ladder.places.artifacts), say, outage)
    return ladder


def plan_of(request: LadderRequest, data: DataSpec, device: str, probe: ProbeRecord) -> Plan:
    """What a ladder tries on this machine, as far as a probe has shown; raises UsageError for unknown names."""
    entry, preset = with_findings(find_workload(request.workload), data), fitted_preset(request, data)
    there = ranks_there(request.launcher) or device_count(device)
    plan = with_parallel(make_plan(device, preset, request.variants, probe, entry.name), preset, entry, there)
    if request.budget is None:
        return plan
    # What no rung tries a search may: all that is left out of one is what can't be had.
    return replace(plan, left_out=tuple(o for o in plan.left_out if o.variant.partition("-")[2] in plan.refused))


def slug(name: str) -> str:
    """A name as a part of a folder's: letters, digits, `-` and `_`."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:40]


def catch_up(uri: str, places: Places, say: Say) -> Outage:
    """Sends what earlier ladders left in their journals; a store that does not answer is told now, not hours later."""
    outage = Outage(say)
    try:
        require_answer(uri)
        sync(places, uri, say)
    except TrackingError as error:
        outage.tell(error)
    return outage
