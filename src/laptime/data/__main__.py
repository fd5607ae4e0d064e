"""The door for other processes: `python -m laptime.data REQUEST.json RESULT.json`.

The request holds `do` (fetch, look, verify or push), `workload`, `asked`, `home` and, for push, `to`. The result
holds `data` (a DataSpec, null of a look), or `error` (one sentence), `kind` (name of the class in laptime.errors) and
`exit_code`, or, where it was interrupted, `kept` (a sentence on what is kept, if anything is). Progress goes to
stdout as JSON lines (`what`, `done`, `total`), notices to stderr.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from laptime.data.fetch import fetch, look, push, verify
from laptime.data.sources import Say
from laptime.errors import LaptimeError, UsageError, refusal
from laptime.host.processes import leave
from laptime.records import write_json
from laptime.spec import DataSpec

_EVERY_S = 0.1


def main(arguments: list[str]) -> int:
    """Answers one request; returns the exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m laptime.data REQUEST.json RESULT.json\n")
        return 2
    request, result = Path(arguments[0]), Path(arguments[1])
    try:
        data = _answer(json.loads(request.read_text(encoding="utf-8")))
    except LaptimeError as error:
        write_json(result, refusal(error))
        return error.exit_code
    except SystemExit as stop:
        if kept := getattr(stop, "__notes__", []):
            write_json(result, {"kept": " ".join(kept)})
        raise
    if isinstance(data, DataSpec) and data.notice:
        sys.stderr.write(f"{data.notice}\n")
    write_json(result, {"data": data.model_dump(mode="json") if isinstance(data, DataSpec) else data})
    return 0


def _answer(request: dict[str, Any]) -> DataSpec | tuple[int, int] | None:
    workload, asked, home = str(request["workload"]), str(request["asked"]), Path(request["home"])
    say = _progress()
    match request["do"]:
        case "fetch":
            return fetch(workload, asked, home, say)
        case "look":
            return look(workload, asked, home)
        case "verify":
            return verify(workload, asked, home, say)
        case "push":
            return push(workload, asked, home, str(request["to"]), say)
    raise UsageError(f"the request {request['do']!r} is none of fetch, look, verify and push.")


def _progress() -> Say:
    last: dict[str, float] = {}

    def say(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what in last and now - last[what] < _EVERY_S and done != total:
            return
        last[what] = now
        # Whoever listened may have been interrupted before this process: its signal says what to do, not the pipe.
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(json.dumps({"what": what, "done": done, "total": total}) + "\n")
            sys.stdout.flush()

    return say


def _stop(number: int, _frame: FrameType | None) -> None:
    # The first one counts: a second must not interrupt the cleaning up that it started.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    # An exception, so that partial folders are removed on the way out.
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        code = main(sys.argv[1:])
    except SystemExit as stop:
        code = int(stop.code or 0)
    # Threads may still be moving parts, which an ordinary end would wait for.
    leave(code)
