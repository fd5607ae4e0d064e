"""No file ends a reader with a traceback: each is read, or refused in one sentence."""

from __future__ import annotations

import os
import shutil
import traceback
from pathlib import Path

import pytest
from fuzz_readers import READERS, Reader

from laptime.errors import LaptimeError

FEWEST = 300


def stands_alone(reader: Reader, folder: Path) -> Path:
    folder.mkdir(parents=True)
    if reader.beside is not None and reader.beside.is_dir():
        shutil.copytree(reader.beside, folder, dirs_exist_ok=True)
    elif reader.beside is not None:
        shutil.copyfile(reader.beside, folder / "record.json")
    path = folder / reader.file
    path.unlink(missing_ok=True)
    return path


def complaint(reader: Reader, path: Path) -> str | None:
    """What is wrong with how a reader takes a file; None where it reads it or refuses it in one sentence."""
    try:
        reader.read(path)
    except LaptimeError as error:
        sentence = str(error)
        if not sentence.isprintable() or len(sentence) > 1500:
            return f"a sentence of {len(sentence)} characters: {sentence[:300]!r}"
    except OSError as error:  # the command line makes one sentence of these
        return None if error.filename is not None else f"{type(error).__name__}: {error}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:120]} ({where.filename.rpartition('/')[2]}:{where.lineno})"
    return None


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.name)
def test_a_bad_file_is_read_or_refused(reader: Reader, tmp_path: Path) -> None:
    complaints = []
    for number, (what, body) in enumerate(reader.inputs(reader.name)):
        path = stands_alone(reader, tmp_path / str(number))
        path.write_bytes(body)
        found = complaint(reader, path)
        if found:
            complaints.append(f"{what}: {found}")
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.name)
def test_what_is_no_file_is_refused(reader: Reader, tmp_path: Path) -> None:
    for number, make in enumerate((Path.mkdir, lambda p: None, lambda p: p.symlink_to(p), _locked)):
        path = stands_alone(reader, tmp_path / str(number))
        make(path)
        assert complaint(reader, path) is None


def _locked(path: Path) -> None:
    path.touch(0o000 if os.geteuid() else 0o644)  # root may read anything


def test_there_are_enough_of_them() -> None:
    inputs = {body for reader in READERS for _, body in reader.inputs(reader.name)}
    assert len(inputs) >= FEWEST
