"""A variant and a workload to the text of a script."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from laptime.catalogue import (
    DEVICES,
    OPTIMIZATIONS,
    class_of,
    find_optimization,
    find_workload,
    options_of,
)
from laptime.data.own.importing import module_place
from laptime.script import lines
from laptime.script.shown import require_printable
from laptime.script.sources import imports_of, source
from laptime.spec import DataSpec
from laptime.variants import Variant

# torchvision's constructor of each workload's architecture.
ARCHITECTURES = {"cifar": "resnet18", "eurosat": "efficientnet_b5"}
# The first convolution of each, which takes as many channels as the images have.
_FIRST = {"cifar": "conv1", "eurosat": "features.0.0"}

_WIDTH = 118
# By device: the batches of an evaluation, see laptime.engine.evaluate.
_EVALUATION = {"cpu": 500, "cuda": 2000}


@dataclass(frozen=True)
class _Subject:
    """What is printed."""

    variant: Variant
    workload: str
    data: DataSpec | None
    fit: lines.Fit | None

    @property
    def base(self) -> lines.Base:
        """The baseline that the variant changes."""
        device, own = DEVICES[self.variant.device], self.data.own if self.data else None
        if own is not None:
            base = lines.Base(own.batch_size, own.learning_rate, device, own=True)
            base = replace(base, clipped=own.clip_norm is not None, schedule=own.schedule, weighted=own.weighted)
            base = replace(base, lightning=own.lightning, by_name=own.by_name, begun=own.begun)
            base = replace(base, micro_batch=own.micro_batch, numbered=own.numbered)
            base = replace(base, modes="modes" in own.optimizer)
            return replace(base, judged=own.quality if own.quality in ("score", "error") else "")
        entry = find_workload(self.workload)
        size = self.fit.batch_size if self.fit else entry.batch_size
        return lines.Base(size, entry.learning_rate, device, own=False, boxes=entry.boxes, sgd=entry.sgd)

    @property
    def workers(self) -> int:
        """Loader processes of the baseline."""
        if self.data is not None:
            return 0
        return self.fit.workers if self.fit else find_workload(self.workload).workers


def print_script(variant: Variant, workload: str, data: DataSpec | None = None, fit: lines.Fit | None = None) -> str:
    """Prints a variant as a script of torch, torchvision and numpy alone, which trains as `laptime run` does.

    That of a detector needs pycocotools, too.

    Args:
        variant: what it does.
        workload: name in the catalogue, or a user's `FILE.py:NAME`.
        data: of a user's own workload what was found in its file.
        fit: batch and loader processes of the baseline; None for those of the tutorials.

    Raises:
        UsageError: the workload or an optimization has no script, with the reason.
    """
    require_printable(variant, workload, data)
    subject = _Subject(variant, workload, data, fit)
    environment = Environment(
        loader=PackageLoader("laptime.script"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Python, not HTML
    )
    environment.globals["source"] = source
    template = environment.get_template("script.py.jinja")
    known = _context(subject)
    body = template.render(**known, imports="")
    return template.render(**known, imports=imports_of(body))


def _context(subject: _Subject) -> dict[str, Any]:
    variant, base = subject.variant, subject.base
    given = {o.name: options_of(o) for o in variant.optimizations}
    o: lines.Chosen = {e.name.replace("-", "_"): given.get(e.name) for e in OPTIMIZATIONS}
    # An entry without options is chosen all the same.
    o = {name: None if options is None else _Options(options) for name, options in o.items()}
    rates = lines.rate_lines(o, base)
    rate = "rate" if rates else "LEARNING_RATE"
    schedule = lines.schedule_lines(o, base, rate)
    optimizer = lines.optimizer_lines(o, base, rate)
    autocast = _autocast(o, base.device)
    nets = lines.net_lines(o, autocast, base)
    several = o["ddp"] is not None or o["flat_reduce"] is not None
    timed = o["products"] is not None and o["products"]["layers"] == "probe"
    own = subject.data is not None
    loader = "ResidentLoader" if o["resident"] is not None else "ItemLoader"
    return {
        **_header(subject),
        "o": o,
        "device": base.device,
        "fit_notes": _commented(subject.fit),
        "batch_size": lines.batch_size(o, base),
        "micro_batch": lines.micro_batch(o, base),
        "rate": lines.learning_rate(o, base),
        "own": _own(subject.data),
        "lightning": base.lightning,
        "numbered": base.numbered,
        "followed": base.schedule,
        "weighted": base.weighted,
        "judged": base.judged,
        "collate": "workload.collate_fn" if base.lightning else "COLLATE",
        "test_collate": "workload.test_collate_fn" if base.lightning else "TEST_COLLATE" if own else "COLLATE",
        **_module(subject.data),
        "boxes": base.boxes,
        "nested": own or base.boxes,
        # Passes on shapes run code of the user's, of which nothing may be left.
        "looked_at": o["dead_taps"] is not None or o["products"] is not None,
        "side": 0 if own else find_workload(subject.workload).image_size,
        "model_made": _model_made(base),
        "page_locked": base.boxes and base.device == "cuda",
        "trained_on": "Mirrored" if base.boxes else loader,
        "architecture": ARCHITECTURES.get(subject.workload),
        "first": _FIRST.get(subject.workload),
        "depthwise": own or subject.workload == "eurosat",
        "timed": timed,
        "ranks": several,
        "cut": "parts" if several else "batches",
        # The user's own evaluation sees all test data, on the first rank.
        "part": "ranks" if base.judged else "RANKS",
        "part_given": ", ranks: int = RANKS" if base.judged and several else "",
        "named_layers": _named_layers(o),
        "autocast": autocast,
        "loader": loader,
        "wrapped": bool(nets),
        "steps_needed": bool(schedule) or base.lightning,
        "needs_size": not own and any(o[n] is not None for n in ("dead_taps", "products", "progressive_resizing")),
        "rate_lines": rates,
        "schedule_lines": schedule,
        "linear": any("share_of_peak" in line for line in schedule),
        "clipped": base.clipped,
        "optimizer_lines": optimizer,
        "remade": any("remade(" in line for line in optimizer),
        "modes": any("optimizer.train()" in line for line in optimizer),
        "spared": any("spare_copies(" in line for line in optimizer),
        "process_lines": lines.process_lines(o),
        "model_lines": lines.model_lines(o, timed, base),
        "net_lines": nets,
        "evaluation_batch": _evaluation_batch(o, base),
        "seeding": "seed_all" if own or several else "torch.manual_seed",
        **_workers(o, subject),
    }


class _Options(dict[str, Any]):
    """Options of an optimization that a variant has: true, also where there are none."""

    def __bool__(self) -> bool:
        return True


def _header(subject: _Subject) -> dict[str, Any]:
    variant, own = subject.variant, subject.data.own if subject.data else None
    # A name of the user's own may hold what ends a text of several lines, or begins an escape sequence.
    named = own.name.replace("\\", "\\\\").replace('"', "'") if own else find_workload(subject.workload).title
    changes = []
    for chosen in variant.optimizations:
        entry = find_optimization(chosen.name)
        changes += textwrap.wrap(
            f"- {chosen.name} ({class_of(chosen)}): {entry.explanation}", _WIDTH, subsequent_indent="  "
        )
    baseline = "Adam, loss and hits read in each step."
    if subject.base.boxes:
        baseline = "SGD, the loss read in each step, the CSV of boxes with each item."
    intro = (
        "What it changes in the loop of the tutorials, and what kind of change each is:"
        if changes
        else f"The loop of the tutorials: single items, fp32, {baseline}"
    )
    ranks = any(o.name in ("ddp", "flat-reduce") for o in variant.optimizations)
    start = ("torchrun --standalone --nproc-per-node=2" if ranks else "python") + " THIS_FILE.py"
    folder = "(FOLDER: one that `laptime data fetch` has written and named)"
    return {
        "title": _titled(f"{named}: {variant.name} as a plain PyTorch script, printed by laptime."),
        "intro": intro,
        "changes": ["", *changes] if changes else [],
        "usage": [start] if own else [f"{start} --data FOLDER", folder],
    }


def _titled(text: str) -> str:
    """A title in lines, which end at blanks or behind the `+` of a variant's name; quotes stand before the first."""
    lines, width = [""], _WIDTH - len('"""')
    for word in re.split(r"(?<=[ +])", text):
        if len(lines[-1]) + len(word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)


def _commented(fit: lines.Fit | None) -> list[str]:
    """Why the batch or the loader is smaller than that of the tutorials."""
    notes = "; ".join(fit.notes) if fit else ""
    return textwrap.wrap(f"Where this was printed: {notes}.", _WIDTH - 2) if notes else []


def _model_made(base: lines.Base) -> str:
    if base.own:
        return "workload.model()"
    second = 'meta.get("side") or SIDE' if base.boxes else 'len(meta["mean"])'
    return f'make_model(len(meta["classes"]), {second})'


def _own(data: DataSpec | None) -> str:
    if data is None or data.own is None:
        return ""
    return f"(Path({json.dumps(data.path, ensure_ascii=False)}), {json.dumps(data.own.attribute)})"


def _module(data: DataSpec | None) -> dict[str, str]:
    """How a user's file is imported: the expressions for its root and its name, and how Python would run it."""
    if data is None:
        return {}
    file = Path(data.path)
    _, name = module_place(file)
    depth = name.count(".")
    if not depth:
        return {"own_root": "file.parent", "own_module": "file.stem", "own_run": f"python {file.name}"}
    return {"own_root": f"file.parents[{depth}]", "own_module": json.dumps(name), "own_run": f"python -m {name}"}


def _autocast(o: lines.Chosen, device: str) -> str:
    precision = next(
        (dtype for name, dtype in (("bf16", "bfloat16"), ("fp16", "float16")) if o[name] is not None), None
    )
    return f'torch.autocast("{device}", torch.{precision})' if precision else ""


def _named_layers(o: lines.Chosen) -> list[str]:
    """The lines that say which layers products' option names; none where it names none."""
    layers = o["products"]["layers"] if o["products"] else "all"
    if layers in ("probe", "all"):
        return []
    if layers == "none":
        return ["named: list[str] = []"]
    return lines.listed("named = ", [f'"{name}"' for name in layers.split("/")])


def _evaluation_batch(o: lines.Chosen, base: lines.Base) -> int:
    if base.own:
        return min(base.batch_size, base.micro_batch or base.batch_size)
    return 32 if o["evaluate_on_cpu"] is not None else _EVALUATION[base.device]


def _workers(o: lines.Chosen, subject: _Subject) -> dict[str, Any]:
    asked, comment = subject.workers, ""
    if o["workers"] is not None:
        asked = o["workers"]["count"]
        if asked == -1:
            asked, comment = 4, "# laptime tries 0, 2, 4 and 8 on the machine; four a GPU is the rule of thumb."
    seeded = asked > 0 and subject.data is not None
    begun = seeded and subject.base.begun
    return {"workers": asked, "workers_comment": comment, "seeded": seeded, "begun": begun}
