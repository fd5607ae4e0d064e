"""Times a workload's CUDA variants in one go, with their checks and the peers, where there may be torch alone.

PYTHONPATH=src python scripts/benchmarks/gpu.py --data DIR --out DIR [--workload eurosat] [--budget-s 500]

What is run, the most important first, for as long as the budget holds: the baseline, the optimized variant and that one
compiled (--final-epochs each, of which quality is judged); the last two with other seeds; one more process of each
under the profiler; the optimized variant less each of its parts (--epochs each); the peers (of cifar alone); then, an
epoch each, the rungs at the baseline's own batch, each on the best so far. --phases names some of it. What no time was
left for is said to be not run.

`ladder.json` and `<variant>/<repeat>/record.json` stand under the output folder after each process, for `laptime
compare`. The same command again takes what stands there as it is and goes on with the rest, on the same machine and
commit. What failed, or ran past its limit, comes last, and once more at the end where as much of the budget is left;
until then nothing more of its variant is begun. A rung comes in the order in which those before it ran: each is judged
beside the best of its time. Ctrl-C, SIGTERM and a closed terminal end it with what has been measured (exit codes 130,
143, 129), and so does the budget, 40 s after it is over, where something hangs. Needs torch (2.11 or newer),
torchvision, numpy, pydantic; detection needs pycocotools, too.

--data takes a store's folder (with meta.json), which is ready, or a folder of images (train/<class>, test/<class>), an
archive of one, and what else `laptime optimize --data` takes (`synthetic` for the stand-in). On a machine that is lent
for minutes let a first command make a store of it, since decoding 60,000 images takes a minute; it says where it is:

    export PYTHONPATH=src LAPTIME_HOME=$PWD/.laptime LAPTIME_COMMIT=<commit, where there is no checkout>
    python scripts/benchmarks/gpu.py --data cifar10.tar.xz --fetch-only
    python scripts/benchmarks/gpu.py --data .laptime/data/<digest> --out out/gpu --budget-s 500
    tar -czf out/gpu.tgz --exclude='trace*.json.gz' out/gpu

and, while time is left, the second and the third once more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpu_bench import Bench, refuse_another
from gpu_ending import Stopped, hear_signals, limit, told
from gpu_plan import PHASES
from gpu_table import checks, headline, kernels, table

from laptime.catalogue import LADDERS, WORKLOADS, find_preset, find_workload
from laptime.errors import LaptimeError, UsageError
from laptime.host.output import say, say_error, say_traceback
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.surroundings import run_probe
from laptime.places import find_places
from laptime.variants import resolve

# What a probe may take of a small budget; a busy CPU's takes a minute.
_PROBE_S = 120.0
# For how long quality has to be kept, by workload; of others the full preset's epochs.
_FINAL_EPOCHS = {"cifar": 8}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=[entry.name for entry in WORKLOADS], default="cifar")
    parser.add_argument("--data", default="auto")
    parser.add_argument("--fetch-only", action="store_true", help="makes the data ready, and nothing else")
    parser.add_argument("--device", choices=sorted(LADDERS), default="cuda", help="cpu for a dry exercise")
    parser.add_argument("--budget-s", type=float, default=500.0)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--final-epochs", type=int, help="of the baseline and the optimized variants; cifar: 8")
    parser.add_argument("--epochs", type=int, default=2, help="of the optimized variant less one of its parts")
    parser.add_argument("--seeds", type=int, default=3, help="processes of the optimized variants")
    parser.add_argument("--phases", default=",".join(PHASES), help="some of it: %(default)s")
    parser.add_argument("--rungs", help="those that are tried; unless given, those at the baseline's own batch")
    parser.add_argument("--limit-train", type=int)
    parser.add_argument("--limit-test", type=int)
    asked = parser.parse_args(arguments)
    asked.out = (asked.out or find_places().home / "bench" / time.strftime("gpu-%Y%m%d-%H%M%S")).resolve()
    entry = find_workload(asked.workload)
    asked.final_epochs = asked.final_epochs or _FINAL_EPOCHS.get(entry.name, find_preset(entry, "full").epochs)
    asked.phases = tuple(asked.phases.split(","))
    return asked


def _require_writable(out: Path) -> None:
    """Refuses a folder that takes no records, before any work; raises UsageError."""
    there = next(place for place in (out, *out.parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UsageError(f"--out {out} can't be written, since {there} is no folder that may be: give another one.")


def _begun(asked: argparse.Namespace, begin: float) -> Bench | None:
    """A bench whose machine is probed and whose data stand ready; None where only these were asked for."""
    unknown = set(asked.phases) - set(PHASES)
    if unknown:
        raise UsageError(f"--phases {min(unknown)} is none of {', '.join(PHASES)}.")
    for rung in asked.rungs.split(",") if asked.rungs else ():
        resolve(f"{asked.device}-{rung}", workload=asked.workload)  # refuses what there is not
    if not asked.fetch_only:
        refuse_another(asked)
        _require_writable(asked.out)
    places = find_places()
    places.home.mkdir(parents=True, exist_ok=True)
    # Before the data, which may take long where there is no such device.
    probe = (
        None if asked.fetch_only else run_probe((asked.workload, asked.device), places, say, limit_s=asked.budget_s / 2)
    )
    data = fetch_data(asked.workload, asked.data, places, in_words(say))
    if data.notice:
        say(data.notice)
    if probe is None:
        say(f"The data stand ready: --data {data.path}")
        return None
    return Bench(asked, data, probe, begin)


def _report(bench: Bench, whole: bool = True) -> None:
    """Prints what has been measured; one part that can't be told takes none of the others away.

    Args:
        bench: what ran.
        whole: False where time is short, since reading the traces of profiles takes seconds.
    """
    folder, runs = bench.folder, bench.runs
    parts: tuple[tuple[str, Callable[[], Sequence[str]]], ...] = (
        ("Kernels by the device's time", lambda: list(kernels(folder, runs)) if whole else []),
        ("Checks: errors over what is allowed", lambda: checks(runs)),
        ("Epochs", lambda: table(bench.record, runs)),
        ("", lambda: headline(bench.record, runs)),
    )
    for title, lines_of in parts:
        try:
            lines = lines_of()
        except Exception:  # the records stand, and a lent machine's time is over after this
            say_traceback()
            continue
        if lines:
            say("\n".join(["", *([title] if title else []), *lines]))
    say(f"\nRecords: {bench.folder} (read them with: laptime compare {bench.folder})")


def _benched(asked: argparse.Namespace, begin: float) -> int:
    bench = _begun(asked, begin)
    if bench is None:
        return 0
    os.environ["LAPTIME_COMMIT"] = bench.record.commit or ""
    ending = "failed"
    try:
        bench.run()
        ending = "done"
    except Stopped:
        ending = "interrupted"
        raise
    finally:
        bench.finish(ending)
        _report(bench, whole=ending == "done")
    wanted = {f"{asked.device}-baseline", f"{asked.device}-optimized"}
    return 0 if wanted <= {name for name, runs in bench.runs.items() if runs[0].status == "done"} else 1


def main(arguments: list[str]) -> int:
    """The command; 0 when the baseline and the optimized variant ran, that of a shell for the signal that ended it."""
    begin, asked = time.monotonic(), None
    try:
        hear_signals()
        asked = parse(arguments)
        if not asked.fetch_only:
            limit(asked.budget_s, begin)
        return _benched(asked, begin)
    except (LaptimeError, OSError) as error:
        say_error(told(error))
        return 1
    except Stopped as stop:
        say_error(stop.sentence(_kept(asked), asked.budget_s if asked else 0.0))
        return stop.code


def _kept(asked: argparse.Namespace | None) -> str:
    """What is there still where this ends before its time."""
    if asked is None or asked.fetch_only:
        return "the same command begins anew"
    return f"what has been measured stays in {asked.out}, and the same command with that --out goes on from there"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
