"""Two of a kind at the same time: timed runs, first starts of a store, syncs, a migration, stores of data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.own_files import TUPLE, write
from tests.samples import write_folder
from tests.warned import BY_MLFLOW

from laptime.records import read_record

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "tracking"))
sys.path.insert(0, str(Path(__file__).parent / "tracking"))

from mlflow_helpers import everything, write_ladder

from laptime.places import Places
from laptime.tracking.journal import state_path
from laptime.tracking.sync import waiting

pytestmark = BY_MLFLOW


def at_once(*commands: tuple[Path, list[str]]) -> list[subprocess.CompletedProcess[str]]:
    """Starts modules together, each in its home, and waits for all."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**os.environ, "LAPTIME_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        for home, words in commands
    ]
    done = []
    for process in processes:
        out, err = process.communicate(timeout=240)
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return done


def test_two_timed_runs_queue_for_the_device_and_the_second_says_so(tmp_path: Path) -> None:
    workload = write(tmp_path / "train.py", TUPLE)
    outs = [tmp_path / "first", tmp_path / "second"]
    run = ["laptime", "run", workload, "--variant", "cpu-baseline", "--epochs", "40", "--no-profile", "--out"]
    done = at_once(*((tmp_path / "home", [*run, str(out)]) for out in outs))
    assert [d.returncode for d in done] == [0, 0], done
    assert any("device cpu is in use by another timed run" in d.stderr for d in done), done
    first, second = sorted((read_record(out / "record.json") for out in outs), key=lambda r: r.started_at or 0.0)
    assert first.ended_at is not None
    assert second.started_at is not None
    assert first.ended_at <= second.started_at


def test_first_starts_of_one_store_syncs_of_one_journal_and_a_migration(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    homes = [Places(tmp_path / name) for name in ("one", "two")]
    ladders = [write_ladder(home, f"ladder-{home.home.name}") for home in homes]
    command = ["laptime", "sync", "--tracking-uri", store]
    done = at_once(*((home.home, command) for home in homes * 2))
    assert [d.returncode for d in done] == [0] * 4, done
    assert [waiting(home) for home in homes] == [[], []]
    before = [everything(store, ladder) for ladder in ladders]
    assert [len(found) for found in before] == [3, 3]
    for home, ladder in zip(homes, ladders, strict=True):
        state_path(home.journal / f"{ladder.id}.jsonl").unlink()
    upgrade = ["mlflow", "db", "upgrade", store]
    done = at_once((tmp_path, upgrade), *((home.home, command) for home in homes))
    assert [d.returncode for d in done] == [0] * 3, done
    assert [everything(store, ladder) for ladder in ladders] == before


def test_two_make_one_store_of_data(tmp_path: Path) -> None:
    images = write_folder(tmp_path / "images", train=60, test=10)
    fetch = ["laptime", "data", "fetch", "cifar", "--data", str(images)]
    home = tmp_path / "home"
    assert [d.returncode for d in at_once(*[(home, fetch)] * 3)] == [0, 0, 0]
    (verified,) = at_once((home, ["laptime", "data", "verify", "cifar", "--data", str(images)]))
    assert verified.returncode == 0, verified
    folders = [p.name for p in (home / "data").iterdir() if p.is_dir()]
    assert len(folders) == 2, folders  # the index and one store: nothing in parts
    assert "index" in folders
