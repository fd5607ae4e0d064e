"""TensorBoard event files of a run, written from its record, without torch."""

from __future__ import annotations

from pathlib import Path

from laptime.records import RunRecord

SCALARS = (
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "test_map50",
    "test_map",
    "test_score",
    "test_error",
    "epoch_s",
    "samples_per_s",
    "step_ms_median",
)


def write_events(record: RunRecord, folder: Path) -> bool:
    """Writes one event file with the record's curves by epoch.

    A folder that holds one already is left as it is, since TensorBoard would draw each point twice.

    Returns:
        Whether the folder holds events.
    """
    if any(folder.glob("events.out.tfevents.*")):
        return True
    if not record.epochs:
        return False
    from tensorboard.summary import Writer

    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(str(folder))
    for epoch in record.epochs:
        for name in SCALARS:
            value = getattr(epoch, name)
            if value is not None:
                writer.add_scalar(name, value, epoch.index, wall_time=epoch.ended_at)
    writer.close()
    _write_tables(record, folder)
    return True


def _write_tables(record: RunRecord, folder: Path) -> None:
    """Adds the tables of a run's profile as texts of a run of their own: no plugin that shows traces is left."""
    tables = [] if record.profile is None else sorted((folder.parent / record.profile.folder).glob("*.txt"))
    if not tables:
        return
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "profile"))
    for path in tables:
        text = f"```\n{path.read_text(encoding='utf-8')}\n```"
        writer.add_event(Event(wall_time=record.ended_at or 0.0, step=0, summary=text_pb(path.stem, text)))
    writer.close()
