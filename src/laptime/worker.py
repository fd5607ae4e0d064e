"""spec.json in, record.json out: all that a process, a container or a pod ever runs.

    python -m laptime.worker SPEC.json RECORD.json

Started by torch's elastic launcher it is one rank of several (see laptime.ranks), of which the first alone writes.

Beside the record it writes progress.jsonl (one JSON object a line), samples.png (images, with their boxes where they
have some), model_summary.txt and, where the spec asks for it, model.pt with a plain state dict. Needs torch,
torchvision, numpy and pydantic alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from laptime.artifacts import (
    ProgressFile,
    epoch_line,
    times_line,
    write_boxes,
    write_model,
    write_samples,
    write_summary,
)
from laptime.catalogue import find_workload
from laptime.data.boxes.tensors import BoxData
from laptime.data.disk import no_room
from laptime.data.own.opened import OwnData
from laptime.data.own.workers import fallen, makers_behind
from laptime.data.tensors import ImageData
from laptime.engine.build import build, find_device, make_recipe, open_data
from laptime.engine.check import check_one_step
from laptime.engine.checkpoint import Checkpoints, CheckpointsAwayError, Found
from laptime.engine.fits import explain_memory, out_of_memory, with_room
from laptime.engine.flops import flops_per_sample
from laptime.engine.recorded import check_recording, with_recording
from laptime.engine.told import explain
from laptime.errors import LaptimeError, UsageError, in_words
from laptime.facts import Facts, finished, keep
from laptime.host.output import say, say_error, say_traceback
from laptime.host.processes import PEER_LOST, Terminated, die_with_parent, hear_no_children, leave, use_own_log
from laptime.host.scratch import sockets_in_scratch
from laptime.host.turns import NO_TURNS, TurnTaker, turn_taker
from laptime.measure.compiling import watching
from laptime.measure.epochs import Plan, Session
from laptime.measure.machine import machine
from laptime.measure.marks import StepMarks
from laptime.measure.memory import cautions_of_others
from laptime.optimizations.base import AnyData, Recipe
from laptime.own.user_code import raised_by_hand
from laptime.profiling.closer import look_closer, look_first
from laptime.records import CheckRecord, EpochRecord, RunRecord, Status, write_record
from laptime.spec import OptimizationSpec, RunSpec, read_spec
from laptime.values.judging import as_judged
from laptime.values.tallies import untouched
from laptime.world import ALONE, World, lost_a_peer, opened, started_by_launcher

_FIRST_WRITES_S = 2.0
# Operations are counted on the net without dead taps for all variants alike: those of the taps are no use to anybody.
# Smaller images are less work, and so are fewer gradients: they count.
_USEFUL, _COUNTED = (OptimizationSpec(name="dead-taps"),), ("progressive-resizing", "selective-backprop")


def run(spec: RunSpec, folder: Path, world: World = ALONE, turns: TurnTaker = NO_TURNS) -> RunRecord:
    """Runs a spec in this process and returns its record, whatever went wrong.

    Args:
        spec: what to run.
        folder: where the files beside the record go.
        world: this process among the ranks; the first alone writes.
        turns: in which it trains beside another one; it has the first, for all that comes before the epochs.

    Raises:
        PeerLostError: another rank is gone; its own error is the one to show.
        CheckpointsAwayError: they can't be seen now, and the launcher starts the ranks anew.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine()  # notes the load before this run adds to it
    facts = Facts(time.time(), spec.optimizations, Checkpoints(spec, world), world, turns)
    epochs = facts.epochs
    status: Status = "done"
    error: str | None = None
    starved = False
    path = folder / "progress.jsonl" if world.first else Path(os.devnull)
    with contextlib.closing(ProgressFile(path)) as progress:
        try:
            for epoch in _train(spec, folder, facts, progress):
                epochs.append(epoch)
                progress.write({"event": "epoch", **epoch.model_dump(mode="json")})
                say(epoch_line(epoch, timed=not spec.check))
            if spec.check:
                say(times_line(epochs))  # only now: a time is shown once the check has passed
        except _Wrong as wrong:
            status, error = "wrong", str(wrong)
        except CheckpointsAwayError:  # a record would be the run's last word
            raise
        except LaptimeError as known:
            status, error = "failed", str(known)
        except (Exception, SystemExit, KeyboardInterrupt) as unexpected:  # what crashes is a failed run; others go on
            hear_no_children()  # who is lost is known by now, or is looked for
            _pass_on(unexpected, world)
            say_traceback()
            status, error = "failed", no_room(unexpected, folder) or _explained(unexpected, spec, facts)
            starved = out_of_memory(unexpected) and not epochs
        if starved and facts.recipe is not None:  # only here: the error above held the step's tensors
            error = explain_memory(facts.recipe) or error
    return finished(spec, facts, (status, error), folder)


def _explained(error: BaseException, spec: RunSpec, facts: Facts) -> str:
    if lost := fallen(error):
        return f"a loader worker {lost}; see log.txt."
    makers = () if facts.own is None else makers_behind(facts.own, error)
    again = facts.recipe if facts.own and facts.world.size == 1 else None  # others would wait for this rank
    return explain(error, Path(spec.data.path) if spec.data.own else None, makers, again)


class PeerLostError(LaptimeError):
    """Another rank is gone."""

    exit_code = PEER_LOST


def _pass_on(error: BaseException, world: World) -> None:
    """Raises what is no failure of this run's own: its end by SIGTERM or Ctrl-C, the loss of another rank."""
    if isinstance(error, Terminated) or (isinstance(error, KeyboardInterrupt) and not raised_by_hand(error)):
        raise error
    if world.size > 1 and lost_a_peer(error) and not out_of_memory(error):  # NCCL says both by one type
        raise PeerLostError(" ".join(str(error).split())[:300]) from error


class _Wrong(Exception):  # noqa: N818 - a verdict, not an error
    """The one-step comparison failed."""


def _train(spec: RunSpec, folder: Path, facts: Facts, progress: ProgressFile) -> Iterator[EpochRecord]:
    data, world = open_data(spec), facts.world
    facts.own = data if isinstance(data, OwnData) else None
    facts.cautions = cautions_of_others(find_device(spec.device, world), world)  # before any tensor of ours is there
    found = _resumed(facts)
    facts.flops = _flops(spec, data)  # before the net that trains: a library that knows weights by names has the last
    recipe = facts.recipe = make_recipe(spec, data, facts.optimizations, world)
    if world.first:
        _write_artifacts(recipe, data, folder)
    marks = StepMarks()
    parts = build(recipe, marks)
    session = Session(parts, recipe, marks, progress.step)
    plan = Plan(spec.epochs, spec.warmup_epochs, spec.warmup_steps)
    facts.startup_s = time.perf_counter() - facts.begun  # the clock may be set meanwhile
    progress.write({"event": "phase", "phase": "warm-up"})
    with watching(recipe.compiled) as session.watch:
        facts.watch = session.watch
        facts.warmup_s = session.warm_up(plan, looks=spec.begins_own)
        facts.syncs, facts.before = session.syncs, session.before
        facts.found.notes += session.told
        if found is not None:
            found.put_into(parts)
            session.train_s = found.epochs[-1].train_s_so_far or 0.0
        for epoch in facts.turns.epochs(session.counted(plan, len(facts.epochs))):
            yield facts.checkpoints.keep(parts, (*facts.epochs, facts.marked(epoch, spec)), facts.settled())
    if spec.save_model and world.first:
        begin = time.perf_counter()
        with as_judged(parts.optimizer):
            write_model(parts.evaluated, folder / "model.pt")
        facts.checkpoint_s = time.perf_counter() - begin
    if spec.check or spec.profile != "none":  # else times alone are wanted, by the gate above all
        look_first(spec, (parts, recipe), facts.epochs, facts.found)
        progress.write({"event": "phase", "phase": "inference" if spec.profile == "none" else "profile"})
        keep(spec, facts, folder)
        look_closer(spec, (parts, recipe), facts.epochs, folder, facts.found)
    if spec.check:
        # After the timed part, whose memory and allocator it would disturb; before the time is shown to anybody.
        progress.write({"event": "phase", "phase": "check"})
        keep(spec, facts, folder)
        recording = check_recording(parts, recipe)  # before the nets of the other check set modes of their own
        facts.check = with_recording(_compared(spec, facts, data, recipe), recording)
        _refuse_wrong(facts.check)


def _flops(spec: RunSpec, data: AnyData) -> float | None:
    """Operations of a sample; on a net of its own, which a user's object keeps no longer than this."""
    smaller = tuple(o for o in spec.optimizations if o.name in _COUNTED)
    unfit = spec.data.own.refused if spec.data.own else find_workload(spec.workload).refused
    useful = tuple(o for o in _USEFUL if o.name not in unfit)
    with untouched(getattr(data, "workload", None)):
        return flops_per_sample(make_recipe(spec, data, (*useful, *smaller)))


def _compared(spec: RunSpec, facts: Facts, data: AnyData, recipe: Recipe) -> CheckRecord | None:
    settled, whole = spec.model_copy(update={"optimizations": facts.settled()}), recipe.batch_size
    # The baseline's step may take twice the memory of the one that trained.
    size, check = with_room(recipe, lambda size: check_one_step(settled, data, size, facts.world))
    if size < whole:
        facts.found.notes.append(f"one step was compared at a batch of {size}: for one of {whole} there was no room")
    return check


def _resumed(facts: Facts) -> Found | None:
    """Where an earlier start of this run has come to, noted in the facts; None where this is the first."""
    found = facts.checkpoints.find()
    if found is not None:
        facts.optimizations = found.optimizations
        *before, last = found.epochs
        facts.epochs += [*before, last.model_copy(update={"interrupted": True})]
        if facts.world.first:
            say(f"going on after epoch {last.index}, from its checkpoint")
    return found


def _refuse_wrong(check: CheckRecord | None) -> None:
    if check is not None and not check.passed:
        raise _Wrong(f"{check.refusal()}.")


def _write_artifacts(recipe: Recipe, data: AnyData, folder: Path) -> None:
    """What a run shows of itself before it trains: its data as they were opened, whatever its recipe makes of them."""
    if isinstance(data, ImageData):
        write_samples(data, folder / "samples.png")
    if isinstance(data, BoxData):
        write_boxes(data, folder / "samples.png")
    write_summary(recipe, folder / "model_summary.txt")


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    raise Terminated(128 + signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """The command; exit code 0 when a record was written, unless it is a failed one of several ranks."""
    if len(arguments) != 2:
        print("usage: python -m laptime.worker SPEC.json RECORD.json", file=sys.stderr)  # noqa: T201
        return UsageError.exit_code
    spec_path, record_path = map(Path, arguments)
    if started_by_launcher():
        die_with_parent()  # a launcher of somebody else's, torchrun say, starts us as we are
        # A rank that waits for others inside of a collective runs no handler: the system ends it.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        use_own_log(record_path.parent)
    else:
        signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        return _run_rank(read_spec(spec_path), record_path)
    except LaptimeError as error:
        say_error(f"laptime.worker: {error}")
        return error.exit_code
    except OSError as error:  # a record that found no room, above all
        say_error(f"laptime.worker: {in_words(error)}")
        return LaptimeError.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Terminated:  # no one kills a worker whose parent has died: the interpreter's own end takes seconds
        return 128 + signal.SIGTERM


def _run_rank(spec: RunSpec, record_path: Path) -> int:
    """Runs a spec as one of its ranks; the first writes the record."""
    if os.environ.get("LOCAL_RANK") == "0":
        record_path.unlink(missing_ok=True)  # of ranks that were started before and lost
    with sockets_in_scratch(), turn_taker() as turns, opened(spec.device) as world:
        turns.prepare()  # another training may import at the same time as this one, and do nothing else
        record = run(spec, record_path.parent, world, turns)
        if world.first:
            write_record(record_path, record)
        if world.grouped and record.status == "failed":
            leave(_failed_code(world, record, record_path))
    return 0


def _failed_code(world: World, record: RunRecord, record_path: Path) -> int:
    """With which exit code a rank leaves whose run failed."""
    if world.first:
        # The launcher ends the others, which may wait for this rank, only where it sees a failure.
        return LaptimeError.exit_code if world.size > 1 else 0
    if _first_failed_too(record_path):
        return 0
    say_error(f"laptime.worker: rank {world.rank}: {record.error}")  # its last words
    return LaptimeError.exit_code


def _first_failed_too(record_path: Path) -> bool:
    """Whether the first rank writes its own record in time: then all failed alike, and its words are shown."""
    until = time.monotonic() + _FIRST_WRITES_S
    while not record_path.is_file() and time.monotonic() < until:
        time.sleep(0.05)
    return record_path.is_file()


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
