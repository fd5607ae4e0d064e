"""What came out of runs and ladders, as data: neither torch nor MLflow is needed to read it."""

from laptime.records.files import read_ladder, read_record, write_json
from laptime.records.ladder import TRIALS, Dropped, LadderRecord, LeftOut, ProbeRecord, Rung
from laptime.records.run import (
    Ceilings,
    CheckRecord,
    CompileRecord,
    EpochRecord,
    Machine,
    Readable,
    RunRecord,
    Status,
)

__all__ = [
    "TRIALS",
    "Ceilings",
    "CheckRecord",
    "CompileRecord",
    "Dropped",
    "EpochRecord",
    "LadderRecord",
    "LeftOut",
    "Machine",
    "ProbeRecord",
    "Readable",
    "RunRecord",
    "Rung",
    "Status",
    "read_ladder",
    "read_record",
    "write_json",
]
