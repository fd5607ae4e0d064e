"""What `laptime explain --code` prints: for every optimization, tidy, and training to the losses of `laptime run`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tests.own_files import ARGUMENTS, ATTACKED, AUGMENTED, DICTIONARY, FOLDER, JUDGED, LINE, PIECES, TUPLE, write
from tests.samples import write_folder
from tests.unit.script.script_runs import assert_equal, numbers_of, run_laptime, run_scripts

from laptime.catalogue import OPTIMIZATIONS, find_optimization, find_workload
from laptime.data.fetch import fetch
from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect
from laptime.script import REFUSED, print_script
from laptime.variants import resolve

# What is chosen by timing is said here, so that both sides choose alike; a size that gives several steps; and a rate at
# which the loss stays below 10, since a float32 of more is not good to 1e-6.
SET = {
    "products": "products:layers=all",
    "large-batch": "large-batch:size=16",
    "workers": "workers:count=1",
    "threads": "threads:count=1",
    "sgd-nesterov": "sgd-nesterov:lr=0.002",
}
# The last two are shown for a user's own workload alone.
PRINTED = [o.name for o in OPTIMIZATIONS if o.name not in {*REFUSED, "decoded", "whole-batch"}]
CPU = [
    n for n in PRINTED if "cpu" in find_optimization(n).devices and n not in ("compile", "bf16", "ddp", "flat-reduce")
]
# Both kinds of steps in both epochs, beside what changes batch, loss and images.
SELECTING = "selective-backprop:keep=0.4:begin=0:end=1:every=2+large-batch:size=8+label-smoothing+flip+ema:every=1"
TOGETHER = "cpu-optimized+products:layers=all+large-batch:size=16+threads:count=1"
VARIANTS = [
    "cpu-baseline",
    *(f"cpu-baseline+{SET.get(n, n)}" for n in CPU),
    TOGETHER,
    "cpu-baseline+large-batch:size=16:schedule=linear:max_lr=0.002+crop:mode=reflect:pixels=3+channels-last",
    f"cpu-baseline+{SELECTING}",
    f"cpu-baseline+{SELECTING}+resident+no-reads+channels-last+crop+progressive-resizing+onecycle",
    f"{TOGETHER}+decay+flip:mode=random+crop+linear-decay:factor=0.5+ema:every=1+label-smoothing+progressive-resizing",
]
IN_BF16 = ["cpu-baseline+bf16", f"cpu-baseline+bf16+{SELECTING}"]
UNJUDGED = TUPLE.replace("(scores.argmax(1) == y).float().mean()", "None")
EVALUATING = TUPLE.replace("nn.Linear(256, 2))", "nn.Linear(256, 2)).eval()")  # as transformers' from_pretrained
ARGUED = TUPLE.replace("def model(self):\n", "def model(self):\n        argparse.ArgumentParser().parse_args()\n")
NAMED = 'name = r"""a \\users "one" """'
# A buffer that the first pass makes, beside a count of passes; a loss that reads values; frozen convolutions.
MASK = """
class Masked(nn.Sequential):
    passes = 0

    def forward(self, x):
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.ones(x.shape[1:]))
        self.passes += self.training
        return super().forward(x * self.mask) * min(1.0, (1 + self.passes) / 8)
"""
MASKED = TUPLE.replace("nn.Sequential(", "Masked(").replace("\nclass", f"{MASK}\nclass", 1)
READING = TUPLE.replace("        x, y = batch\n", "        x, y = batch\n        assert y.max().item() < 2\n")
FROZEN = TUPLE.replace(
    "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))",
    "nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(3, 4, 3, 1, 1).requires_grad_(False), nn.Flatten(), nn.Linear(16, 2))",
)
# Each reading of its weight in training moves what the next one gives.
SPECTRAL = TUPLE.replace("nn.Linear(256, 2)", "nn.utils.parametrizations.spectral_norm(nn.Linear(256, 2))")
# Buffers of one value seen in several places, which nothing can be put back into, and of a graph's edges.
HELD = """
class Held(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self.register_buffer("scale", torch.ones(1, 2).expand(3, 2))
        self.register_buffer("edges", torch.eye(2).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.edges, (super().forward(x) * self.scale[0]).T).T
"""
HOLDING = TUPLE.replace("nn.Sequential(", "Held(").replace("\nclass", f"{HELD}\nclass", 1)
# Keeps what it has computed, as for a plot, and a weight as it was in its last call: of such tensors torch copies none.
KEEPING = TUPLE.replace("nn.Linear(256, 2)", "nn.utils.spectral_norm(nn.Linear(256, 2))")
KEEPING = KEEPING.replace("nn.Sequential(", "Keeping(").replace(
    "\nclass",
    "\nclass Keeping(nn.Sequential):\n    def forward(self, x):\n        self.seen = super().forward(x)\n"
    "        return self.seen\n\nclass",
    1,
)
# Pieces that are switched off, as by a configuration's defaults.
OFF = TUPLE.replace(
    "batch_size = 16", "batch_size = 16\n    optimizer = schedule = evaluate = clip_norm = collate_fn = None"
)
# Takes what it needs out of the batch, as many losses around transformers do.
POPPED = DICTIONARY.replace("model(**batch)", 'model(batch.pop("input_values"), batch.pop("labels"))')
# Sequences to train on are of one length, those to test on of several.
RAGGED = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

X = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
ITEMS = [(x if i < 64 else x[: 2 + i % 5], (x.mean() > 0).long()) for i, x in enumerate(X)]

class Workload:
    batch_size = 16

    def collate_fn(self, items):
        xs, ys = zip(*items)
        return pad_sequence(xs, batch_first=True), torch.stack(ys)

    def data(self):
        return ITEMS[:64], ITEMS[64:]

    def model(self):
        return nn.GRU(1, 2, batch_first=True)

    def loss(self, model, batch):
        x, y = batch
        scores = model(x[..., None])[1][0]
        return F.cross_entropy(scores, y), (scores.argmax(1) == y).float().mean()
"""
OWN = {
    "evaluating_file": (EVALUATING, ("cpu-baseline",)),
    "argued_file": (f"import argparse\n{ARGUED}", ("cpu-baseline",)),
    "named_file": (TUPLE.replace("batch_size = 16", f"{NAMED}\n    batch_size = 16"), ("cpu-baseline",)),
    "masked_file": (MASKED, ("cpu-baseline",)),
    "reading_file": (READING, ("cpu-baseline+products:layers=all",)),
    "line_file": (PIECES.replace(*LINE), ("cpu-baseline+dead-taps",)),
    "frozen_file": (FROZEN, ("cpu-baseline+products",)),
    "ragged_file": (RAGGED, ("cpu-baseline+resident",)),
    "folder_file": (FOLDER, ("cpu-baseline+decoded",)),
    "tuple_file": (TUPLE, ("cpu-baseline", TOGETHER)),
    "dictionary_file": (DICTIONARY, ("cpu-baseline+resident",)),
    "spectral_file": (SPECTRAL, ("cpu-baseline",)),
    "holding_file": (HOLDING, ("cpu-baseline+ema:every=1",)),
    "keeping_file": (KEEPING, ("cpu-baseline+ema:every=1",)),
    "off_file": (OFF, ("cpu-baseline",)),
    "popped_file": (POPPED, ("cpu-baseline",)),
    "unjudged_file": (UNJUDGED, ("cpu-baseline",)),
    "judged_file": (JUDGED, ("cpu-baseline", TOGETHER)),
    "error_file": (
        JUDGED.replace("batch_size", "higher_is_better = False\n    batch_size").replace(*ATTACKED),
        ("cpu-baseline",),
    ),
    "pieces_file": (ARGUMENTS + PIECES, ("cpu-baseline", "cpu-baseline+large-batch:size=32+ema:every=1+no-reads")),
    "augmented_file": (AUGMENTED, ("cpu-baseline", "cpu-baseline+workers:count=2")),
}


def printed_with(name: str, workload: str = "cifar") -> str:
    device = "cuda" if "cpu" not in find_optimization(name).devices else "cpu"
    return print_script(resolve(f"{device}-baseline+{name}"), workload)


def code(text: str) -> str:
    """A script without its docstring."""
    return ast.unparse(ast.parse(text).body[1:])


def test_what_is_refused_is_there():
    assert REFUSED.keys() <= {o.name for o in OPTIMIZATIONS}


@pytest.mark.parametrize("name", PRINTED)
def test_every_optimization_changes_the_script(name):
    device = "cuda" if "cpu" not in find_optimization(name).devices else "cpu"
    assert code(printed_with(name)) != code(print_script(resolve(f"{device}-baseline"), "cifar"))


@pytest.mark.parametrize("name", [o.name for o in OPTIMIZATIONS if o.name in REFUSED])
def test_a_refusal_names_the_optimization_and_a_reason(name):
    with pytest.raises(UsageError, match=rf"no script, because of {name}: {REFUSED[name]}. Leave {name} out"):
        print_script(resolve(f"cpu-baseline+{name}"), "cifar")


def test_an_unknown_workload_is_refused():
    with pytest.raises(UsageError, match="no script of workload 'mnist': give --workload cifar, eurosat"):
        print_script(resolve("cpu-baseline"), "mnist")


def test_what_is_printed_is_tidy(tmp_path):
    names = ["cpu-optimized", "cuda-optimized", "cuda-baseline+graph+fp16+pinned", "cpu-baseline+flip+ema+decay"]
    names += [f"cpu-baseline+{SELECTING}+{more}" for more in ("bf16+compile", "ddp", "flat-reduce+crop+no-reads")]
    names += [f"cuda-baseline+{SELECTING}+fp16", "cpu-baseline+compile:layout=channels-last"]
    names += ["cpu-baseline+decay+sgd-nesterov:momentum=0.8+fused-optimizer+dead-taps+progressive-resizing"]
    names += [f"cpu-baseline+products:layers={'/'.join(f'layer{n}.{m}.conv1' for n in '1234' for m in '01')}"]
    for workload in ("cifar", "eurosat"):
        for name in PRINTED:
            (tmp_path / f"{workload}_{name}.py").write_text(printed_with(name, workload), encoding="utf-8")
        for number, name in enumerate(names):
            (tmp_path / f"{workload}_{number}.py").write_text(print_script(resolve(name), workload), encoding="utf-8")
    for text in (TUPLE, DICTIONARY, PIECES, JUDGED, FOLDER):
        data = inspect(write(tmp_path / "own_tidy.py", text))
        sys.modules.pop("own_tidy")
        for name in (
            "cpu-baseline",
            "cpu-baseline+workers",
            "cpu-baseline+ddp",
            "cuda-baseline+evaluate-on-cpu",
            "cpu-baseline+resident+fused-optimizer+bf16" if text != FOLDER else "cpu-baseline+decoded+workers:count=1",
            "cuda-baseline+fp16",
        ):
            printed = print_script(resolve(name), "own", data).replace(str(tmp_path), "/home")  # however long that is
            (tmp_path / f"own_{name}.py").write_text(printed, encoding="utf-8")
    (tmp_path / "own_tidy.py").unlink()
    ruff = [str(Path(sys.executable).parent / "ruff")]
    lint = ["check", "--isolated", "--select", "E,F,I", "--line-length", "120", "--target-version", "py311"]
    done = subprocess.run([*ruff, *lint, str(tmp_path)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    form = ["format", "--isolated", "--line-length", "120", "--diff"]
    done = subprocess.run([*ruff, *form, str(tmp_path)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("script")
    return fetch("cifar", str(write_folder(root / "images", train=12, test=3)), root)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    root = tmp_path_factory.mktemp("own-script")
    return {name: inspect(write(root / f"{name}.py", text)) for name, (text, _) in OWN.items()}


def losses_of(variant, workload, data, folder):
    return numbers_of(run_laptime(variant, workload, data, folder))


def printed_for(names, store, folder):
    return run_scripts(folder, {name: (print_script(resolve(name), "cifar"), ["--data", store.path]) for name in names})


@pytest.fixture(scope="module")
def printed(store, tmp_path_factory):
    return printed_for(VARIANTS, store, tmp_path_factory.mktemp("scripts"))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_script_trains_to_the_losses_of_the_run(name, printed, store, tmp_path):
    assert_equal(printed[name], losses_of(resolve(name), "cifar", store, tmp_path))


@pytest.fixture(scope="module")
def printed_in_bf16(store, tmp_path_factory):
    return printed_for(IN_BF16, store, tmp_path_factory.mktemp("scripts"))


@pytest.mark.bf16
@pytest.mark.parametrize("name", IN_BF16)
def test_a_script_trains_to_the_losses_of_the_run_in_bf16(name, printed_in_bf16, store, tmp_path):
    assert_equal(printed_in_bf16[name], losses_of(resolve(name), "cifar", store, tmp_path))


@pytest.fixture(scope="module")
def printed_own(own, tmp_path_factory):
    scripts = {
        f"{file}|{name}": (print_script(chosen(name, own[file]), "own", own[file]), [])
        for file, (_, names) in OWN.items()
        for name in names
    }
    return run_scripts(tmp_path_factory.mktemp("own-scripts"), scripts)


def chosen(name, data):
    return resolve(name, tuple(data.own.refused))


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, (_, names) in OWN.items() for name in names])
def test_a_script_of_the_users_own_workload(file, name, printed_own, own, tmp_path):
    assert_equal(printed_own[f"{file}|{name}"], losses_of(chosen(name, own[file]), "own", own[file], tmp_path))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("cpu-baseline+workers:count=0", "eurosat"),  # 20 processes on few cores are warned of
        (TOGETHER, "eurosat"),
        ("cpu-baseline+compile:backend=aot_eager", "cifar"),
    ],
)
def test_a_script_of_a_slower_kind(name, workload, tmp_path):
    size = find_workload(workload).image_size
    data = fetch(workload, str(write_folder(tmp_path / "images", train=8, test=2, size=size)), tmp_path)
    scripts = {name: (print_script(resolve(name), workload), ["--data", data.path])}
    assert_equal(run_scripts(tmp_path, scripts)[name], losses_of(resolve(name), workload, data, tmp_path / "run"))


@pytest.mark.parametrize(("given", "shown"), [("", False), (":bucket_mb=10", True)])
def test_a_size_of_ddp_s_buckets_is_shown_only_where_it_was_given(given, shown):
    text = print_script(resolve(f"cpu-baseline+ddp:tuned=true{given}"), "cifar")
    assert ('"bucket_cap_mb": 10' in text) is shown
    assert ("a run tries some sizes out" in text) is not shown
    assert '"bucket_cap_mb": 0' not in text
