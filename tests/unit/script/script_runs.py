"""Scripts that `laptime explain --code` has printed, run without laptime, and the same runs by laptime."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tests.own_files import write

from laptime.catalogue import find_workload
from laptime.preflight.inspecting import inspect
from laptime.records import RunRecord
from laptime.script import print_script
from laptime.spec import DataSpec, RunSpec
from laptime.variants import Variant, resolve
from laptime.worker import run

EPOCHS = 2
# Runs scripts one after another in a process that has no laptime, each as if it were alone.
DRIVER = """
import contextlib, io, json, runpy, sys
import torch
sys.modules["laptime"] = None
found = {}
for name, arguments in json.loads(sys.argv[1]).items():
    torch.set_flush_denormal(False)
    torch.set_num_threads(1)
    sys.argv = arguments
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(arguments[0], run_name="__main__")
    found[name] = out.getvalue()
print(json.dumps(found))
"""
# The numbers of an epoch's line, in its order; seconds are no concern of these tests.
NUMBERS = re.compile(r"(?:loss|accuracy|test_map50|test_map|test_score|test_error) ([0-9.]+|nan)")


def run_scripts(folder: Path, scripts: dict[str, tuple[str, list[str]]]) -> dict[str, list[tuple[float, ...]]]:
    """Runs scripts without laptime; returns losses and measures of quality by epoch, in the order of the lines."""
    asked = {}
    for number, (name, (text, arguments)) in enumerate(scripts.items()):
        (folder / f"script_{number}.py").write_text(text, encoding="utf-8")
        asked[name] = [str(folder / f"script_{number}.py"), *arguments, "--epochs", str(EPOCHS)]
    done = subprocess.run(
        [sys.executable, "-I", "-c", DRIVER, json.dumps(asked)],
        check=False,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        name: [tuple(map(float, NUMBERS.findall(line))) for line in text.splitlines() if line.startswith("epoch")]
        for name, text in json.loads(done.stdout).items()
    }


def numbers_of(record: RunRecord) -> list[tuple[float | None, ...]]:
    """The same numbers of the run itself: losses and accuracies, and what an evaluation of the user's own gave."""
    found = [(e.train_loss, e.train_accuracy, e.test_loss, e.test_accuracy) for e in record.epochs]
    judged = [next((v for v in (e.test_score, e.test_error) if v is not None), None) for e in record.epochs]
    return [numbers if value is None else (*numbers, value) for numbers, value in zip(found, judged, strict=True)]


def assert_equal(found: list[tuple[float, ...]], expected: list[tuple[float | None, ...]]) -> None:
    """Losses within 1e-6, shares within what is printed; what a run does not know has no column."""
    assert len(found) == len(expected) == EPOCHS
    for ours, theirs in zip(found, expected, strict=True):
        known = [(value, 1e-4 if place % 2 else 1e-6) for place, value in enumerate(theirs) if value is not None]
        assert len(ours) == len(known)
        for value, (other, tolerance) in zip(ours, known, strict=True):
            assert value == pytest.approx(other, abs=tolerance, rel=0)


def run_laptime(variant: Variant, workload: str, data: DataSpec, folder: Path, warmup_epochs: int = 0) -> RunRecord:
    """The same training by laptime itself, on one thread."""
    entry = data.own or find_workload(workload)
    spec = RunSpec(
        workload=workload,
        variant=variant.name,
        optimizations=variant.optimizations,
        data=data,
        batch_size=entry.batch_size,
        learning_rate=entry.learning_rate,
        epochs=EPOCHS,
        warmup_epochs=warmup_epochs,
        check=False,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        record = run(spec, folder)
    finally:
        torch.set_num_threads(threads)
    assert record.status == "done", record.error
    return record


@contextmanager
def inspected(root: Path, files: dict[str, tuple[str, str]]) -> Iterator[dict[str, DataSpec]]:
    """Trainings of a user's own by kind, from a file's text and its name for the workload; they can be imported."""
    path = list(sys.path)
    names = {
        kind: write(root / f"{root.name}_{kind}.py", text).replace(":Workload", f":{attribute}")
        for kind, (text, attribute) in files.items()
    }
    yield {kind: inspect(name) for kind, name in names.items()}
    sys.path[:] = path


def run_own_scripts(
    folder: Path, cases: Sequence[tuple[str, str]], found: dict[str, DataSpec]
) -> dict[str, list[tuple[float, ...]]]:
    """`run_scripts` of kinds of trainings and variants, by `kind|variant`."""
    scripts = {f"{kind}|{name}": (print_script(resolve(name), "own", found[kind]), []) for kind, name in cases}
    return run_scripts(folder, scripts)


def assert_tidy(folder: Path) -> None:
    """The scripts in a folder have no name too many, none twice, are sorted and formatted."""
    for script in folder.glob("*.py"):
        defined, idle = _names(ast.parse(script.read_text(encoding="utf-8")))
        assert len(set(defined)) == len(defined), (script.name, sorted(defined))
        assert not idle, (script.name, sorted(idle))
    ruff = [str(Path(sys.executable).parent / "ruff")]
    lint = ["check", "--isolated", "--select", "E,F,I", "--line-length", "120", "--target-version", "py311"]
    for command in (lint, ["format", "--isolated", "--line-length", "120", "--diff"]):
        done = subprocess.run([*ruff, *command, str(folder)], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def _names(script: ast.Module) -> tuple[list[str], set[str]]:
    """What a script defines at its top level, and what of that nothing comes to that it does."""
    uses, waiting = dict[str, set[str]](), set[str]()
    defined = list[str]()
    for node in script.body:
        made = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        made = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else made
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        defined += made
        uses |= dict.fromkeys(made, used)
        waiting |= set() if made else used
    idle = set(uses)
    while waiting:
        name = waiting.pop()
        waiting |= uses[name] & idle if name in idle else set()
        idle.discard(name)
    return defined, idle
