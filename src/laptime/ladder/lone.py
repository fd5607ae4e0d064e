"""One variant alone, told to the tracking store and advised on, as a ladder's variants are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from laptime.compare.comparison import compare, ladder_of
from laptime.compare.sides import load_sides
from laptime.errors import TrackingError, in_words, shorten
from laptime.host.processes import undisturbed
from laptime.ladder.advising import JSON, MARKDOWN, the_rules
from laptime.ladder.afterwards import brought, proposed
from laptime.ladder.figures import lone_figures
from laptime.ladder.plan import rung_of
from laptime.ladder.probing import known_probe
from laptime.ladder.single import Say, Single
from laptime.ladder.surroundings import commit
from laptime.launchers.base import RECORD, Hooks, failed
from laptime.places import Places
from laptime.records import Advice, LadderRecord, RunRecord, write_json
from laptime.tracking import Journal, masked
from laptime.tracking.base import RunStatus
from laptime.tracking.journal import read_state
from laptime.tracking.lone import lone_broken_off, lone_recorded, lone_started
from laptime.tracking.reach import require_answer, require_port
from laptime.tracking.rule_history import rule_history
from laptime.tracking.sync import sync, target_of

# What a database's server may take to accept a connection.
_PORT_S = 3.0

T = TypeVar("T")


class LoneRun:
    """A run that others hear of. As a context it ends in the journal, whatever comes: killed, it is ended by the sweep.

    Nothing speaks to the store before it has trained: starting MLflow takes seconds, and is done once.

    Attributes:
        advice: what the rules say of it; None where they were not asked.
        afterwards: what it shows of the gain that an earlier advice promised; None where none did.
    """

    def __init__(self, single: Single, places: Places, uri: str, say: Say) -> None:
        self.single, self.places, self.uri, self.say = single, places, uri, say
        self.advice: Advice | None = None
        self.afterwards: str | None = None
        self._alone = _ladder_of_one(single)
        os.environ["LAPTIME_COMMIT"] = self._alone.commit or ""  # for the record that the worker writes
        self._journal = Journal(places.journal / f"{single.id}.jsonl", target_of(uri, places))
        lone_started(self._journal, self._alone, failed(single.spec, ""), single.folder)
        self._told = False
        self._record: RunRecord | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._record is not None and not self._told:  # it has trained: its record stands, whoever interrupts
            with undisturbed(), suppress(TrackingError):
                self._tell(self._record, {})
        elif error is not None and not self._told:
            ending: tuple[RunStatus, str] = ("FAILED", shorten(str(error), 500))
            if isinstance(error, KeyboardInterrupt):
                ending = ("KILLED", "interrupted")
            with suppress(TrackingError):  # of a full disk, say: the first error is the one to show
                lone_broken_off(self._journal, self._alone, self.single.folder, ending)
        self._journal.close()

    def run(self, hooks: Hooks) -> RunRecord:
        """Trains the variant."""
        self._record = self.single.run(hooks)
        return self._record

    def tell(self, record: RunRecord) -> None:
        """Advises on what came of it, and tells all to the journal."""
        if record.status == "done":
            self.advice = self._guarded("no advice can be given", lambda: self._advise(record))
            self.afterwards = self._guarded("an earlier advice can't be judged", lambda: self._judge(record))
        figures = self._guarded("it goes without an interval", lambda: self._figures(record)) or {}
        self._tell(record, figures)

    def _tell(self, record: RunRecord, figures: dict[str, float]) -> None:
        lone_recorded(self._journal, self._alone, record, self.single.folder, figures)
        self._told = True

    def publish(self) -> bool:
        """Copies the journal into MLflow; False, and a sentence, where that does not answer: the journal keeps all."""
        try:
            self._require_store()
            self.say(f"Sending the run to MLflow ({masked(self.uri)})")
            sync(self.places, self.uri, self.say)
        except TrackingError as error:
            self.say(f"laptime: {error}")
        except OSError as error:  # how far the journal has come finds no room
            self.say(f"laptime: {in_words(error)}")
        else:
            return True
        return False

    @property
    def embedded(self) -> bool:
        """Whether the store is the home's own, which `laptime ui` shows."""
        return self.uri == self.places.embedded_mlflow_uri

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run; None where it has not arrived."""
        return read_state(self._journal.path).runs.get(self.single.id)

    def _require_store(self) -> None:
        require_answer(self.uri)
        require_port(self.uri, _PORT_S)

    def _advise(self, record: RunRecord) -> Advice:
        folder, rules = self.single.folder, the_rules()
        beside = load_sides(folder / RECORD)
        for sentence in beside.unreadable:
            self.say(sentence)
        history = {}
        with suppress(TrackingError):  # `publish` says so
            self._require_store()
            history = rule_history(self.uri, self.say, record.machine.fingerprint)
        advice = rules.advise(
            record, beside.traces.get(self.single.spec.variant), history, known_probe(record, self.places)
        )
        write_json(folder / JSON, advice)
        (folder / MARKDOWN).write_text(rules.to_markdown(advice), encoding="utf-8")
        return advice

    def _judge(self, record: RunRecord) -> str | None:
        before = proposed(record, self.places)
        return None if before is None else brought(record, before, self._alone.quality)

    def _figures(self, record: RunRecord) -> dict[str, float]:
        row = compare(self._alone, [record]).row(self.single.spec.variant)
        return lone_figures(row) if row is not None and row.n else {}

    def _guarded(self, what: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except Exception as error:  # arithmetic on foreign figures: hours of training must not hang on it
            self.say(f"NOTICE: {what}: {type(error).__name__}: {shorten(str(error), 200)}")
            return None


def _ladder_of_one(single: Single) -> LadderRecord:
    """In whose terms a run is told and compared; nobody planned it, and it stands nowhere."""
    least = ladder_of([failed(single.spec, "")])
    rungs = (rung_of(single.variant, None),)
    return least.model_copy(update={"id": single.id, "rungs": rungs, "commit": commit(), "started_at": time.time()})
