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
until then nothing more of its variant is begun. Needs torch (2.11 or newer), torchvision, numpy, pydantic; detection
needs pycocotools, too.

--data takes a store's folder (with meta.json), which is ready, or a folder of images (train/<class>, test/<class>), an
archive of one, and what else `laptime optimize --data` takes (`synthetic` for the stand-in). On a machine that is lent
for minutes let a first command make a store of it, since decoding 60,000 images takes a minute; it says where it is:

    export PYTHONPATH=src LAPTIME_HOME=$PWD/.laptime LAPTIME_COMMIT=<commit, where there is no checkout>
    python scripts/benchmarks/gpu.py --data cifar10.tar.xz --fetch-only
    python scripts/benchmarks/gpu.py --data .laptime/data/<digest> --out out/gpu --budget-s 500
    tar -czf gpu.tgz --exclude='trace*.json.gz' out/gpu

and, while time is left, the second and the third once more.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from gpu_bench import Bench, refuse_another, say
from gpu_plan import PHASES
from gpu_table import checks, headline, kernels, table

from laptime.catalogue import LADDERS, WORKLOADS, find_preset, find_workload
from laptime.errors import LaptimeError, UsageError
from laptime.ladder.data import fetch_data, in_words
from laptime.ladder.surroundings import run_probe
from laptime.places import find_places
from laptime.variants import resolve

# For how long quality has to be kept, by workload; of others the full preset's epochs.
_FINAL_EPOCHS = {"cifar": 8}


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


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


def _begun(asked: argparse.Namespace, begin: float) -> Bench | None:
    """A bench whose machine is probed and whose data stand ready; None where only these were asked for."""
    unknown = set(asked.phases) - set(PHASES)
    if unknown:
        raise UsageError(f"--phases {min(unknown)} is none of {', '.join(PHASES)}.")
    for rung in asked.rungs.split(",") if asked.rungs else ():
        resolve(f"{asked.device}-{rung}", workload=asked.workload)  # refuses what there is not
    if not asked.fetch_only:
        refuse_another(asked)
    places = find_places()
    places.home.mkdir(parents=True, exist_ok=True)
    # Before the data, which may take long where there is no such device.
    probe = None if asked.fetch_only else run_probe((asked.workload, asked.device), places, say)
    data = fetch_data(asked.workload, asked.data, places, in_words(say))
    if data.notice:
        say(data.notice)
    if probe is None:
        say(f"The data stand ready: --data {data.path}")
        return None
    return Bench(asked, data, probe, begin)


def _report(bench: Bench) -> None:
    for title, lines in (
        ("Kernels by the device's time", list(kernels(bench.folder, bench.runs))),
        ("Checks: errors over what is allowed", checks(bench.runs)),
        ("Epochs", table(bench.record, bench.runs)),
        ("", headline(bench.record, bench.runs)),
    ):
        if lines:
            say("\n".join(["", *([title] if title else []), *lines]))
    say(f"\nRecords: {bench.folder} (read them with: laptime compare {bench.folder})")


def main(arguments: list[str]) -> int:
    """The command; 0 when the baseline and the optimized variant ran."""
    signal.signal(signal.SIGTERM, _on_sigterm)
    begin, asked, ending = time.monotonic(), parse(arguments), "done"
    try:
        bench = _begun(asked, begin)
    except LaptimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if bench is None:
        return 0
    os.environ["LAPTIME_COMMIT"] = bench.record.commit or ""
    try:
        bench.run()
    except KeyboardInterrupt:
        ending = "interrupted"
    bench.finish(ending)
    _report(bench)
    wanted = {f"{asked.device}-baseline", f"{asked.device}-optimized"}
    whole = wanted <= {name for name, runs in bench.runs.items() if runs[0].status == "done"}
    return 130 if ending == "interrupted" else 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
