"""A gate as data: every process, pair, flag and figure, so that the verdict can be made again from the file alone."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from laptime.errors import DataError
from laptime.gate.decision import Verdict
from laptime.gate.policy import LOOKS, Policy
from laptime.records import Machine, Readable
from laptime.records.base import Moment
from laptime.spec import Versioned, read_versioned

# The second holds pairs by turns, whose ratio a reader of the first alone would take for another one.
GATE_SCHEMA, TURNS_SCHEMA = "laptime.gate/1", "laptime.gate/2"

Side = Literal["base", "head"]
Kind = Literal["not_regressed", "improved", "regressed", "inconclusive", "invalid", "error", "parity"]

EXIT_CODES: dict[Kind, int] = {
    "not_regressed": 0,
    "improved": 0,
    "regressed": 1,
    "inconclusive": 3,
    "invalid": 4,
    "error": 5,
    "parity": 6,
}


class PolicyRecord(Readable):
    """The rule, as it was fixed before the first pair; see `laptime.gate.policy.Policy`."""

    max_slowdown: float = 0.10
    alpha: float = 0.01
    beta: float = 0.05
    looks: tuple[int, ...] = LOOKS

    def policy(self) -> Policy:
        """The policy; raises UsageError where a file holds one that makes no sense."""
        return Policy(self.max_slowdown, self.alpha, self.beta, self.looks)


class SideInfo(Readable):
    """One of the two checkouts.

    Attributes:
        ref: what the user named; empty for a folder.
        sha: the commit, empty outside version control.
        dirty: whether it was gated with changes that are not committed.
        inside: the folder in it that the gate was called in, where a command or a file is named by it; else empty.
        environment: of its interpreter: `shared` or `own`.
    """

    ref: str = ""
    sha: str = ""
    dirty: bool = False
    folder: str = ""
    inside: str = ""
    environment: Literal["shared", "own"] = "shared"


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Wait = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ProcessRecord(Readable):
    """One training process, cut down to what the gate needs of its record.

    Attributes:
        index: numbers of the kept epochs; empty where an earlier version wrote it.
        epoch_s: seconds of the kept epochs.
        samples: samples of the kept epochs, as a set in order.
        steps: of the shortest kept epoch; 0 where the record does not say.
        wall_s: seconds from the start of the process to its end, less those in which it waited for its turns.
        spec: digest of what was trained, seed and places apart.
        trained: the same by field, in short words; empty where an earlier version wrote it.
        hardware: CPU, cores, memory and GPUs in words; two sides must agree in it.
        startup_s: seconds to the first step.
        recompiles: graphs that an earlier one did not fit; None where nothing is compiled.
        parts_s: seconds of one epoch by part, medians over the kept ones.
    """

    side: Side
    seed: int = 0
    index: tuple[int, ...] = ()
    epoch_s: tuple[Seconds, ...] = ()
    samples: tuple[int, ...] = ()
    steps: int = 0
    wall_s: float = 0.0
    started_at: float = 0.0
    spec: str = ""
    trained: dict[str, str] = Field(default_factory=dict)
    data: str = ""
    stand_in: bool = False
    hardware: str = ""
    startup_s: Wait | None = None
    compile_s: float | None = None
    recompiles: int | None = None
    step_ms: float | None = None
    step_p99_ms: float | None = None
    syncs_per_step: int | None = None
    peak_memory_mib: float | None = None
    test_accuracy: float | None = None
    test_map50: float | None = None
    test_score: float | None = None
    test_error: float | None = None
    test_loss: float | None = None
    parts_s: dict[str, float] = Field(default_factory=dict)

    @property
    def z(self) -> float:
        """Median of the kept epochs' logarithms: of an even count it is not the logarithm of the median."""
        return median(math.log(seconds) for seconds in self.epoch_s)


def _timed(process: ProcessRecord) -> ProcessRecord:
    if not process.epoch_s:
        raise ValueError("must have kept epochs, in seconds")
    return process


Timed = Annotated[ProcessRecord, AfterValidator(_timed)]


class PairRecord(Readable):
    """One process of each side: at the same time with their epochs by turns, or one after the other.

    Attributes:
        number: from 1, in the order of time, repeated pairs included.
        order: `AB` where base ran first.
        flags: what was seen on the machine before anybody looked at the times.
        counted: whether it is among the pairs that decide; a flagged pair that was repeated is not.
        by_turns: whether both ran at the same time, one epoch of one and then of the other.
        together_s: seconds from the first start to the last end where both ran at the same time; None where an earlier
            version wrote it.
    """

    number: int
    order: Literal["AB", "BA"]
    seed: int
    base: Timed
    head: Timed
    flags: tuple[str, ...] = ()
    counted: bool = True
    by_turns: bool = False
    together_s: float | None = None

    @property
    def took_s(self) -> float:
        """What it cost."""
        return self.together_s or self.base.wall_s + self.head.wall_s

    @property
    def log_ratio(self) -> float:
        """Of head's time to base's: by turns the median over epochs that followed each other, else of the medians."""
        if self.by_turns and self.base.index == self.head.index and len(self.base.epoch_s) == len(self.head.epoch_s):
            return median(math.log(h / b) for b, h in zip(self.base.epoch_s, self.head.epoch_s, strict=True))
        return self.head.z - self.base.z


class Trouble(Readable):
    """Why a gate has no verdict from pairs; `log` holds the last lines of the process that failed."""

    kind: Literal["invalid", "error", "inconclusive"]
    reason: str
    log: str = ""


class CheckRecord(Readable):
    """A figure beside the epoch time.

    Attributes:
        ok: whether it is within its limit; None where it has none.
    """

    name: str
    base: float
    head: float
    unit: str = ""
    limit: str = ""
    ok: bool | None = None


class Cause(Readable):
    """The part of the step that grew most: seconds of an epoch."""

    part: str
    base_s: float
    head_s: float
    share: float


class Outcome(Readable):
    """What a gate says.

    Attributes:
        sentence: the verdict in words.
        decision: the figures; None where there were too few pairs for any.
        not_shown: what the gate did not show, a sentence each.
    """

    kind: Kind
    exit_code: int
    sentence: str
    decision: Verdict | None = None
    checks: tuple[CheckRecord, ...] = ()
    cause: Cause | None = None
    not_shown: tuple[str, ...] = ()


class GateRecord(Readable):
    """A gate, whole or as far as it came.

    Attributes:
        mode: `gate`, or `aa` where base was compared with itself.
        variant: what both sides train, written out; or their commands.
        noise: known standard deviation of a pair's log ratio (s0), None where unknown.
        fingerprint: of what decides speed and noise: machine, versions, what is trained.
        pair_s: expected seconds of one pair, from the unmeasured processes.
        advisory: why this gate will hardly come to a verdict; empty when it should.
        notices: what the user must know.
    """

    schema_: str = Field(default=GATE_SCHEMA, alias="schema")
    id: str
    mode: Literal["gate", "aa"] = "gate"
    workload: str
    variant: str = ""
    base: SideInfo = SideInfo()
    head: SideInfo = SideInfo()
    policy: PolicyRecord = PolicyRecord()
    noise: float | None = None
    noise_source: str = ""
    fingerprint: str = ""
    machine: Machine = Machine()
    budget_s: float = 900.0
    limit_train: int | None = None
    pair_s: float | None = None
    advisory: str = ""
    notices: tuple[str, ...] = ()
    pairs: tuple[PairRecord, ...] = ()
    trouble: Trouble | None = None
    outcome: Outcome | None = None
    status: Literal["running", "done", "interrupted"] = "running"
    started_at: Moment = 0.0
    ended_at: Moment | None = None

    @property
    def counted(self) -> tuple[PairRecord, ...]:
        return tuple(p for p in self.pairs if p.counted)

    @property
    def by_turns(self) -> bool:
        return bool(self.pairs) and all(p.by_turns for p in self.pairs)

    @property
    def log_ratios(self) -> list[float]:
        return [p.log_ratio for p in self.counted]


GATE_FILE = Versioned("gate", GATE_SCHEMA, "replay it with the version that wrote it", DataError, (TURNS_SCHEMA,))


def read_gate(path: Path) -> GateRecord:
    """Reads a gate that `--json` wrote; raises DataError, see `read_versioned`."""
    return read_versioned(path, GateRecord, GATE_FILE)
