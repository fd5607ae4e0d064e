"""What came out of runs and ladders, as data: neither torch nor MLflow is needed to read it."""

from laptime.records.advice import Advice, Finding, Measured, RuleHistory, Withheld
from laptime.records.base import Readable
from laptime.records.breakdown import Breakdown, InferenceRecord, LayoutRecord, ProfileRecord, Quartiles, SetupRecord
from laptime.records.files import PARTIAL, read_ladder, read_record, record_paths, write_json, write_record
from laptime.records.ladder import TRIALS, VERIFY, Dropped, LadderRecord, LeftOut, ProbeRecord, Rung
from laptime.records.prediction import Found, Guess, Prediction, Predictions, Refused
from laptime.records.run import (
    Ceilings,
    CheckRecord,
    CompileRecord,
    EpochRecord,
    Machine,
    RunRecord,
    StartRecord,
    Status,
)
from laptime.records.trace import (
    CATEGORIES,
    CollectiveRow,
    CopyRow,
    KernelStats,
    OperatorRow,
    SyncRow,
    TraceSummary,
)

__all__ = [
    "CATEGORIES",
    "PARTIAL",
    "TRIALS",
    "VERIFY",
    "Advice",
    "Breakdown",
    "Ceilings",
    "CheckRecord",
    "CollectiveRow",
    "CompileRecord",
    "CopyRow",
    "Dropped",
    "EpochRecord",
    "Finding",
    "Found",
    "Guess",
    "InferenceRecord",
    "KernelStats",
    "LadderRecord",
    "LayoutRecord",
    "LeftOut",
    "Machine",
    "Measured",
    "OperatorRow",
    "Prediction",
    "Predictions",
    "ProbeRecord",
    "ProfileRecord",
    "Quartiles",
    "Readable",
    "Refused",
    "RuleHistory",
    "RunRecord",
    "Rung",
    "SetupRecord",
    "StartRecord",
    "Status",
    "SyncRow",
    "TraceSummary",
    "Withheld",
    "read_ladder",
    "read_record",
    "record_paths",
    "write_json",
    "write_record",
]
