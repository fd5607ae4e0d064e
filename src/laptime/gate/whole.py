"""A whole gate: checkouts, environments, pairs, verdict, files. What the command line and the flow share."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from laptime.devices import lock_name
from laptime.errors import LaptimeError, UsageError, in_words
from laptime.gate.checkouts import checkouts
from laptime.gate.conclude import conclude
from laptime.gate.history import Elsewhere, History, nowhere
from laptime.gate.process import fingerprint
from laptime.gate.records import GateRecord, Side, Trouble
from laptime.gate.request import NO_DEVICE, GateRequest
from laptime.gate.runner import Gate, Told
from laptime.gate.sides import Ready, SideError, make_ready, what_trains
from laptime.gate.trainer import Trainer
from laptime.host.scratch import scratch
from laptime.launchers.base import ignore
from laptime.launchers.lock import require_lock
from laptime.places import Places

Save = Callable[[GateRecord], None]


def run_gate(
    request: GateRequest,
    places: Places,
    say: Callable[[str], None],
    save: Save = ignore,
    elsewhere: Elsewhere = nowhere,
) -> GateRecord:
    """Runs a gate to its end; whatever goes wrong on the way becomes its verdict, never `regressed`.

    Args:
        request: what is compared.
        places: where data and earlier gates stand.
        say: takes sentences.
        save: takes the record after each step; every one is a valid report.
        elsewhere: gates that are stored elsewhere, for the noise.

    Raises:
        UsageError: the request can't be carried out here.
        KeyboardInterrupt: after the record was saved as interrupted.
    """
    state = _State(_new_record(request), save)
    history = History(places.home / "gates", time.time(), elsewhere)
    try:
        with scratch("gate") as room:
            _run(request, places, state, (room, say, history))
        state.notice(history.health(state.record))
    except UsageError:
        raise
    except SideError as error:
        state.end("error" if error.side == "head" else "invalid", str(error), error.log)
    except LaptimeError as error:
        state.end("invalid", str(error))
    except OSError as error:
        state.end("invalid", in_words(error))
    except Exception as error:  # a bug of ours must not stop a pull request as a regression
        state.end("invalid", f"the gate itself failed: {type(error).__name__}: {error}.")
    finally:
        if state.record.pairs:
            with contextlib.suppress(OSError):
                history.keep(state.record)
    return state.record


class _State:
    """The record as it was saved last, also when what changes it is cut off."""

    def __init__(self, record: GateRecord, save: Save) -> None:
        self.record, self._save = record, save

    def take(self, record: GateRecord) -> None:
        self.record = record
        self._save(record)

    def notice(self, text: str) -> None:
        if text:
            self.take(self.record.model_copy(update={"notices": (*self.record.notices, text)}))

    def end(self, kind: str, reason: str, log: str = "") -> None:
        trouble = Trouble.model_validate({"kind": kind, "reason": reason, "log": log})
        ended = self.record.model_copy(update={"trouble": trouble, "status": "done", "ended_at": time.time()})
        self.take(ended.model_copy(update={"outcome": conclude(ended)}))


def _run(
    request: GateRequest, places: Places, state: _State, around: tuple[Path, Callable[[str], None], History]
) -> None:
    room, say, history = around
    if request.device != NO_DEVICE:
        require_lock(lock_name(request.device))
    with checkouts(request, Path.cwd(), room, say) as infos:
        base, head, written, notice = make_ready(request, infos, places.home, say)
        notices = [f"{r.side} is gated with changes that are not committed." for r in (base, head) if r.info.dirty]
        if notice:
            say(notice)
            notices.append(notice)
        state.record = state.record.model_copy(
            update={"base": base.info, "head": head.info, "variant": written, "notices": tuple(notices)}
        )
        trainer = Trainer(room / "runs", request.device, request.timeout, say)
        ready: dict[Side, Ready] = {"base": base, "head": head}
        gate = Gate(
            record=state.record,
            train=lambda side, seed: trainer.train(ready[side], seed),
            by_turns=lambda first, second, seed: trainer.train_by_turns(ready[first], ready[second], seed),
            noise=history.noise,
            fingerprint=lambda trained: fingerprint(trained, what_trains(request, written, head.info)),
            told=Told(say=say, save=state.take),
            first_seed=request.seed,
            max_aa=request.aa,
        )
        gate.run()


def _new_record(request: GateRequest) -> GateRecord:
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in request.workload)[:40]
    made = GateRecord(
        id=f"{time.strftime('%Y%m%d-%H%M%S')}-gate-{name}-{secrets.token_hex(2)}",
        mode="aa" if request.aa else "gate",
        workload=request.workload,
        variant=request.variant,
        policy=request.policy(),
        budget_s=request.budget_s,
        limit_train=request.limit_train,
        started_at=time.time(),
    )
    return made.model_copy(update={"outcome": conclude(made)})
