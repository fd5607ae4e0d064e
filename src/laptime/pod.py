"""What a pod of launcher `kubernetes` runs, and nothing of it knows Kubernetes: one machine's part of one run.

    python -m laptime.pod STORE RUN --ranks N [--nodes MIN:MAX --node INDEX --endpoint HOST:PORT ...]

It takes the spec and the data out of the run store (a folder that all machines share, or an s3:// prefix), starts
`laptime.ranks` and puts the record, the log and the files beside it back into the store. torch is never loaded here, so
that what memory ran out on leaves somebody to tell of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from laptime.data.objects import Objects, open_objects, patiently
from laptime.errors import DataError, LaptimeError, RunError, in_words
from laptime.host.processes import ENDPOINT_LOST, RANKS_FILE, rank_log
from laptime.launchers.base import LOG, PROGRESS, RECORD, SPEC, Hooks
from laptime.launchers.process import how_ended, run_child, supervise
from laptime.nodes import Nodes, add_options, read_nodes
from laptime.parsing import parse_json
from laptime.places import find_places
from laptime.records import PARTIAL, SYSTEM, write_json
from laptime.runstore import CHECKPOINTS, PROFILE, PROFILE_ARCHIVE, data_place, failure_name
from laptime.spec import DataSpec, RunSpec, read_spec

_UPLOAD_EVERY_S = 1.0
_AGAIN_S = 2.0
_PATIENCE_S = 600.0
_BESIDE = ("model.pt", "samples.png", "model_summary.txt", SYSTEM)


class Pod:
    """One machine's part of a run.

    Args:
        store: where runs stand.
        run: the run's name there.
        folder: of this machine's own files.
    """

    def __init__(self, store: str, run: str, folder: Path) -> None:
        self._store, self._run, self._folder = store, run, folder
        self._objects: Objects = open_objects(f"{store}/{run}")
        self._next = 0.0

    def bring(self) -> RunSpec:
        """Spec and data, ready on this machine; raises LaptimeError.

        A store that is away is waited for, since a pod that ends uses up one of its restarts.
        """
        body = patiently(lambda: self._objects.read(SPEC), _PATIENCE_S, _say)
        if body is None:
            raise RunError(f"{self._objects.url} holds no {SPEC}: check the run store and the run's name.")
        path = self._folder / SPEC
        path.write_bytes(body)
        spec = read_spec(path)
        data = self._data(spec)
        if data.digest != spec.data.digest:
            raise RunError(
                f"the data at {data.asked} has digest {data.digest[:12]}, the run is of {spec.data.digest[:12]}: "
                "push the run's data there."
            )
        here = spec.data.model_copy(update={"path": data.path})
        own = spec.checkpoints or f"{self._store}/{self._run}/{CHECKPOINTS}"
        spec = spec.model_copy(update={"data": here, "checkpoints": own})
        write_json(path, spec)
        return spec

    def train(self, spec: RunSpec, ranks: int, nodes: Nodes | None) -> int:
        """Runs this machine's ranks to their end; returns the exit code of their launcher.

        Where node 0 is away, which serves the endpoint, the others wait until it is there again.
        """
        words = ["laptime.ranks", str(ranks)]
        words += [str(self._folder / SPEC), str(self._folder / RECORD), *(nodes.words() if nodes else [])]
        until = time.monotonic() + spec.timeout_s
        while True:
            hooks = Hooks(on_line=_say, on_event=lambda _: self._upload_now_and_then())
            code = supervise(words, self._folder, hooks, (), until - time.monotonic(), spec.device)
            if code is None:
                raise RunError(f"ran past its time-out of {spec.timeout_s:g} s and was ended: raise --timeout.")
            if code != ENDPOINT_LOST:
                return code
            _say("node 0, where the nodes meet, is away: waiting for it")
            time.sleep(_AGAIN_S)

    def give_back(self) -> None:
        """Puts what the first rank left into the store, its record last; on other machines there is nothing."""
        if not (self._folder / RECORD).is_file():
            return
        if (self._folder / PROFILE).is_dir():
            shutil.make_archive(str(self._folder / PROFILE), "zip", self._folder / PROFILE)
        until = time.monotonic() + _PATIENCE_S
        for name in (*_BESIDE, PROFILE_ARCHIVE, PROGRESS, LOG, RECORD):
            self._upload_by(name, until)

    def fail(self, why: str, index: int) -> None:
        """Tells the launcher why this machine's part failed; the logs go into the store, since pods go with the Job."""
        self._objects.write(json.dumps({"error": why}).encode(), failure_name(index))
        # The log of that name is the first rank's, who alone writes progress.
        first = (self._folder / PROGRESS).is_file()
        self._upload(LOG, LOG if first else f"log-node-{index}.txt")
        if first:  # the memory before it ran out, for one
            self._upload(SYSTEM)
        for log in sorted(self._folder.glob(rank_log(self._folder, "*").name)):
            self._upload(log.name)

    def why_failed(self, code: int) -> str:
        """What the ranks' launcher found out about their end: which one died, and its last words."""
        rank, log = 0, self._folder / LOG
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            found = parse_json((self._folder / RANKS_FILE).read_bytes())
            rank, code = int(found["rank"]), int(found["exit_code"])
            log = rank_log(self._folder, rank) if rank else log
        return f"rank {rank} {how_ended(code, log)}"

    def _data(self, spec: RunSpec) -> DataSpec:
        request, result = self._folder / "request.json", self._folder / "result.json"
        place = data_place(self._store, spec.data.digest)
        asked = {"do": "fetch", "workload": spec.workload, "asked": place, "home": str(find_places().home)}
        write_json(request, asked)
        run_child("laptime.data", [str(request), str(result)], _say)
        found = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else {"error": "it left no answer."}
        if "data" not in found:
            raise RunError(f"the data of the run can't be had: {found['error']}")
        return DataSpec.model_validate(found["data"])

    def _upload_now_and_then(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _UPLOAD_EVERY_S
            with contextlib.suppress(DataError):  # the next time will do
                # What was measured before the check and the profile, should they be the pod's end.
                for name in (PARTIAL, PROGRESS, LOG):
                    self._upload(name)

    def _upload_by(self, name: str, until: float) -> None:
        """Tries again while the store is away: the run behind it may have taken hours."""
        while True:
            try:
                return self._upload(name)
            except DataError:
                if time.monotonic() > until:
                    raise
                time.sleep(_AGAIN_S)

    def _upload(self, name: str, to: str = "") -> None:
        path = self._folder / name
        if path.is_file():
            self._objects.write(path.read_bytes(), to or name)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _stop(_number: int, _frame: FrameType | None) -> None:
    """As process 1 of a container SIGTERM would be ignored; an exception ends the ranks on its way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """The command; exit code 0 when this machine's ranks came to their end."""
    parser = argparse.ArgumentParser(prog="python -m laptime.pod", description="One machine's part of one run.")
    parser.add_argument("store")
    parser.add_argument("name")
    parser.add_argument("--ranks", type=int, required=True)
    add_options(parser)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(prefix="laptime-pod-") as folder:
        try:
            pod = Pod(given.store, given.name, Path(folder))
            return _run(pod, given.ranks, read_nodes(given), given.node)
        except LaptimeError as error:
            sys.stderr.write(f"laptime.pod: {error}\n")
            return error.exit_code
        except OSError as error:  # a full disk
            sys.stderr.write(f"laptime.pod: {in_words(error)}\n")
            return 1


def _run(pod: Pod, ranks: int, nodes: Nodes | None, index: int) -> int:
    try:
        spec = pod.bring()
        code = pod.train(spec, ranks, nodes)
        pod.give_back()
    except (LaptimeError, OSError) as error:
        with contextlib.suppress(DataError):  # the store that is away is the error
            pod.fail(in_words(error) if isinstance(error, OSError) else str(error), index)
        raise
    if code:
        pod.fail(pod.why_failed(code), index)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
