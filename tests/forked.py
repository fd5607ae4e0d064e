"""Commands for one import of all that they need: each runs in a fork of a process that has it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# What each fork does is what Python does with a script: its words go to files, its exit code is that of SystemExit.
_DRIVER = """
import json, os, sys, tempfile, traceback
_, imported, called, commands = sys.argv
scope = {}
exec(imported, scope)
found = []
for words in json.loads(commands):
    out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
    child = os.fork()
    if not child:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        code, sys.argv = 1, ["command", *words]
        try:
            exec(called, scope)
            code = 0
        except SystemExit as left:
            code = left.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = []
    for file in (out, err):
        file.seek(0)
        texts.append(file.read())
    found.append([code, *texts])
print(json.dumps(found))
"""


def run_each(
    imported: str, called: str, commands: Sequence[Sequence[str]], folder: Path, environment: Mapping[str, str]
) -> list[subprocess.CompletedProcess[str]]:
    """Runs commands one after another, each in a process of its own.

    Args:
        imported: code that imports what they need.
        called: code that reads `sys.argv` and ends with SystemExit, as a command does.
        commands: the arguments of each.
        folder: where all run.
        environment: that of all.
    """
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, imported, called, json.dumps(commands)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=240,
        check=True,
    )
    return [
        subprocess.CompletedProcess(words, code, out, err)
        for words, (code, out, err) in zip(commands, json.loads(done.stdout), strict=True)
    ]
