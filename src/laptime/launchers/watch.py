"""Looks after a run's pods while they train: passes on what they say, and finds out why no record will come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from laptime.data.objects import Objects
from laptime.errors import DataError, RunError
from laptime.launchers.base import LOG, PROGRESS, RECORD, Hooks, event_of
from laptime.launchers.pods import Object, delay, refusal, running, started, verdict
from laptime.launchers.settings import Settings

LOOK_EVERY_S = 1.0
# How long a cluster or a store may be away before a run is given up.
AWAY_S = 60.0
# After the Job's end, how long its record may still be on its way through the store.
_LATE_S = 5.0


class AwayError(RunError):
    """The cluster does not answer; it may in a moment."""


class Cluster(Protocol):
    """What is asked of a cluster while a run is on its way; each may raise RunError."""

    def pods(self, run: str) -> list[Object]:
        """The pods of a run."""

    def events(self, run: str) -> list[Object]:
        """What happened to its Job."""

    def job(self, run: str) -> Object:
        """The Job with its state."""


@dataclass
class Watch:
    """Looks after a run until it has left a record or can't any more.

    Attributes:
        cluster: where its pods are.
        settings: the launcher's.
        run: its name.
        place: its place in the run store.
        hooks: who hears of it.
        least: pods without which it can't train.
        clock, sleep: seconds.
    """

    cluster: Cluster
    settings: Settings
    run: str
    place: Objects
    hooks: Hooks
    least: int = 1
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def follow(self, timeout_s: float) -> str | None:
        """Passes on what the ranks say, until a record is there; else returns why none will come.

        Pods that wait for a place don't use up the time-out.
        """
        self._told = {PROGRESS: 0, LOG: 0}
        self._begun = self._answered = self.clock()
        self._ready: float | None = None
        while True:
            try:
                arrived = self.place.read(RECORD) is not None
                self._pass_on()
                if arrived:
                    return None
                why = self._trouble(timeout_s)
                self._answered = self.clock()
            except (AwayError, DataError) as error:  # of the cluster, of the store
                why = str(error) if self.clock() - self._answered > AWAY_S else None
            except RunError as error:  # a refusal ends this run, not the ladder around it
                why = str(error)
            if why is not None:
                return why
            self.sleep(LOOK_EVERY_S)

    def _trouble(self, timeout_s: float) -> str | None:
        """Why there will be no record; None while there may be one."""
        pods = self.cluster.pods(self.run)
        # While enough of them run, one that can't start costs no run: the image may come at a later try.
        why = None if running(pods) >= self.least else refusal(pods, () if pods else self.cluster.events(self.run))
        if why is not None:
            return why
        now = self.clock()
        if self._ready is None and started(pods) >= self.least:
            self._ready = now
        if self._ready is None and now - self._begun > self.settings.pending_s:
            return self._unscheduled(pods)
        if self._ready is not None and now - self._ready > timeout_s:
            return f"ran past its time-out of {timeout_s:g} s and was ended: raise --timeout or limit the data"
        end = verdict(self.cluster.job(self.run))
        if end is None:
            return None
        self.sleep(_LATE_S)
        return None if self.place.read(RECORD) is not None else f"the Job ended ({end}) without a record"

    def _unscheduled(self, pods: list[Object]) -> str:
        there = f"{started(pods)} of the {self.least} pods that the run needs" if started(pods) else "no pod of the run"
        waited = f"{there} started within {self.settings.pending_s:g} s"
        reason = delay(pods) or "no reason was given"
        return f"{waited} ({reason}): ask for less by LAPTIME_KUBERNETES_*, or add nodes"

    def _pass_on(self) -> None:
        for name in (PROGRESS, LOG):
            text = self.place.read(name) or b""
            end = text.rfind(b"\n") + 1
            begin = self._told[name]
            if begin > end or text[begin - 1 : begin] not in (b"", b"\n"):
                begin = 0  # another pod's, after a restart
            fresh = text[begin:end].decode(errors="replace").splitlines()
            self._told[name] = end
            for line in fresh:
                if name == LOG:
                    self.hooks.on_line(line)
                elif event := event_of(line.encode()):
                    self.hooks.on_event(event)
