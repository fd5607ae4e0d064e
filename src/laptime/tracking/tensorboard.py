"""TensorBoard event files of a run, written from its record, without torch."""

from __future__ import annotations

from pathlib import Path

from laptime.records import RunRecord

SCALARS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "epoch_s", "samples_per_s")


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
    return True
