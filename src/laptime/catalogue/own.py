"""A user's own workload, named by `path/to/train.py:workload`, as an entry beside those of the catalogue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from laptime.catalogue.entries import Preset, WorkloadEntry
from laptime.errors import UsageError, shorten
from laptime.places import expanded
from laptime.spec import DataSpec

# What a short ladder tries one by one; those before each in the ladder enter with it.
_RUNGS = ("decoded", "resident", "whole-batch", "fused-optimizer", "bf16", "large-batch")
_PRESETS = (
    Preset("quick", epochs=2, repeats=3, rungs=_RUNGS, warmup_steps=5, limit_train=2000, limit_test=1000),
    Preset("full", epochs=4, repeats=3, warmup_steps=50, parallel=True, ablation=True),
)


def is_own(name: str) -> bool:
    """Whether a workload's name is a place in a file of the user's."""
    return name.partition(":")[0].endswith(".py")


def refuse_elsewhere(name: str) -> None:
    """Says what to write where a name means code of the user's that is no file of Python's.

    Raises:
        UsageError: it names a notebook, or a module as an import does.
    """
    file, colon, attribute = name.partition(":")
    if file.endswith(".ipynb"):
        raise UsageError(
            f"{shorten(file)!r} is a notebook, and each process imports the training from a file: begin the cell that "
            f"defines it with %%writefile my_train.py, and give my_train.py:{attribute or 'workload'}."
        )
    if colon and file and not attribute.startswith("/"):
        path = file if "/" in file else file.replace(".", "/")
        raise UsageError(
            f"{shorten(name)!r} names no file of yours and no workload of laptime's: give the path of your training, "
            f"{shorten(path)}.py:{shorten(attribute) or 'NAME'}."
        )


def resolved(name: str) -> str:
    """A workload's name with the file's whole path, so that one file has one name; others stay as they are."""
    file, _, attribute = name.partition(":")
    return f"{expanded(file).resolve()}:{attribute}" if is_own(name) else name


def place_of(name: str) -> tuple[Path, str]:
    """The file, absolute, and the attribute that a name says.

    Raises:
        UsageError: it names no attribute, or there is no such file.
    """
    file, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    path = expanded(file).absolute()
    names = attribute.split(",")  # of a LightningModule and of its LightningDataModule
    if len(names) > 2 or not all(name.isidentifier() for name in names):
        raise UsageError(
            f"{shorten(name)!r} names no workload in the file: write {shorten(file)}:NAME, where NAME is the object, "
            "class or function that makes it."
        )
    if not path.is_file():
        raise UsageError(
            f"there is no file {shorten(str(path))!r}: give the path of your training, or write one with laptime new."
        )
    return path, attribute


def own_entry(name: str) -> WorkloadEntry:
    """The entry of a user's own workload before anybody looked into its file."""
    file = name.partition(":")[0]
    return WorkloadEntry(
        name=Path(file).stem,
        title=f"{name.rpartition(':')[2]} of {Path(file).name}",
        explanation="a training of the user's own",
        batch_size=32,
        learning_rate=1e-3,
        quality="accuracy",
        floor_over_chance=0.0,
        image_size=0,
        train_count=0,
        test_count=0,
        presets=_PRESETS,
    )


def with_findings(entry: WorkloadEntry, data: DataSpec) -> WorkloadEntry:
    """An entry with what was found in the user's file, or as it is for a workload of the catalogue."""
    own = data.own
    if own is None:
        return entry
    return replace(
        entry,
        name=own.name,
        batch_size=own.batch_size,
        learning_rate=own.learning_rate,
        quality=own.quality,
        train_count=data.train_count,
        test_count=data.test_count,
        refused={**entry.refused, **own.refused},
    )
