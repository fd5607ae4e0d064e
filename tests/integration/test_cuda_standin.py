"""What a GPU alone would run, without one: streams, captures, graphs and torch's own allocator for CUDA.

A runtime of our own (cuda_standin.c) stands for NVIDIA's. Kernels do nothing in it, so this sees no wrong number; it
sees tensors on the wrong device, reads within a step, and what a capture can't hold.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tests.samples import write_folder

from laptime.ladder.data import fetch_data
from laptime.places import Places
from laptime.preflight.inspecting import inspect

HERE = Path(__file__).parent
SRC, ROOT = HERE.parents[1] / "src", HERE.parents[1]
_LEAST_CUDA = 13


def headers() -> list[str]:
    """Where the wheels beside torch's keep CUDA's headers; none where this torch is for CPUs alone."""
    specs = filter(None, map(find_spec, ("nvidia", "triton")))
    packages = [Path(place) for spec in specs for place in spec.submodule_search_locations or ()]
    wanted = ("cuda_runtime_api.h", "crt/host_defines.h")
    there = [next((f for p in packages for f in p.glob(f"**/include/{name}")), None) for name in wanted]
    return (
        [] if None in there else [f"-I{str(file).removesuffix(name)}" for file, name in zip(there, wanted, strict=True)]
    )


@pytest.fixture(scope="module")
def runtime(tmp_path_factory) -> Path:
    cuda = int((torch.version.cuda or "0").partition(".")[0])  # before 13 some of its functions have other arguments
    if torch.cuda.is_available() or not (sys.platform == "linux" and cuda >= _LEAST_CUDA and shutil.which("gcc")):
        pytest.skip("for a torch with CUDA 13 on Linux without a GPU, and a compiler")
    if not headers():
        pytest.skip("the wheels beside torch hold no headers of CUDA")
    library = tmp_path_factory.mktemp("runtime") / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", "-w", *headers(), f"-Wl,-soname,{library.name}", "-o", str(library)]
    subprocess.run([*command, str(HERE / "cuda_standin.c"), "-lpthread"], check=True, capture_output=True)
    return library


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    return fetch_data("cifar", str(write_folder(root / "images", train=15, test=4)), Places(root / "home"))


VARIANTS = (
    "cuda-baseline",
    "cuda-optimized+products:layers=all+large-batch:size=10",
    "cuda-optimized-without-no-reads+ema+flip+crop+linear-decay+large-batch:size=10",
    "cuda-baseline+pinned+fp16+graph+sgd-nesterov",
)


# A training of a user's own in micro batches.
OWN = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

DATA = TensorDataset(torch.randn(24, 8), torch.randint(0, 3, (24,)))


class Workload:
    batch_size, micro_batch_size = 12, 4

    def data(self):
        return DATA, DATA

    def model(self):
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def loss(self, model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])


workload = Workload()
"""


def trained(runtime, data, folder, *names):
    """What the child says of each variant, and on standard error."""
    environment = os.environ | {"LD_PRELOAD": str(runtime), "PYTHONPATH": f"{ROOT}:{SRC}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "cuda_standin.py"), data.model_dump_json(), str(folder), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"variant"')], done.stderr


def test_micro_batches_add_up_where_the_compiler_has_graphs(runtime, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    # torch's own graphs around each pass, whose next launch writes where gradients stand; without Inductor.
    name = "cuda-baseline+compile-graphed:backend=cudagraphs"
    (line,), said = trained(runtime, inspect(f"{tmp_path / 'own.py'}:workload"), tmp_path, name)
    assert (line["error"], line["epochs"]) == (None, 2)
    assert "standin:" not in said


# As quantization-aware training has it.
OBSERVED = OWN.replace("nn.ReLU()", "torch.ao.quantization.default_fused_act_fake_quant()")
# What no GPU takes, in fp32 neither.
ON_HOST = OWN.replace("model(batch[0])", "model(batch[0].cpu())")


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.parametrize(
    ("name", "text", "told"),
    [("fits", OWN, None), ("observed", OBSERVED, "on this GPU fails in bf16"), ("on_host", ON_HOST, None)],
)
def test_a_step_that_fails_in_bf16_on_a_gpu_is_told_before_it_trains(runtime, tmp_path, name, text, told):
    (tmp_path / f"{name}.py").write_text(text)
    (line,), said = trained(runtime, inspect(f"{tmp_path / name}.py:workload"), tmp_path, "halved")
    assert (line["reason"] is None) == (told is None), (line, said[-2000:])
    assert told is None or (told in line["reason"] and f"{name}.py, line " in line["reason"])


def test_variants_train_on_cuda_tensors_and_record_their_step(runtime, data, tmp_path):
    (*lines, reading), stderr = trained(runtime, data, tmp_path, *VARIANTS, "reading")
    assert [line["variant"] for line in lines] == list(VARIANTS)
    for line in lines:
        baseline = line["variant"] == "cuda-baseline"
        assert line["status"] in ("done", "wrong"), line
        assert line["epochs"] == 2
        assert line["graphed"] != baseline
        assert line["syncs"] == (2 if baseline else 0)
    said, of_reading = stderr.rsplit("reading\n", 1)
    assert "standin:" not in said, said[-3000:]
    # A recorded step that reads its loss is refused, and so would be any of the above.
    assert "when stream is capturing" in reading["error"]
    assert "standin: wait for the capturing stream" in of_reading


@pytest.mark.parametrize("gib", ["3", "140"])
def test_ceilings_are_measured_on_a_small_gpu_too(runtime, data, tmp_path, monkeypatch, gib):
    monkeypatch.setenv("STANDIN_GIB", gib)
    (line,), said = trained(runtime, data, tmp_path, "probed")
    assert None not in line["ceilings"].values()
    assert "standin:" not in said


LIGHTNING = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from lightning.pytorch import LightningModule


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 3)

    def training_step(self, batch, index):
        images, labels = batch
        assert images.device == self.device, self.device
        return F.cross_entropy(self.net(images), labels, weight=torch.ones(3, device=self.device))

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(24, 8), torch.randint(0, 3, (24,))), batch_size=8)

    val_dataloader = train_dataloader

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


workload = Net
"""


@pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed")
def test_a_lightning_module_knows_its_gpu_and_no_step_of_ours_counts_for_its_trainers(runtime, tmp_path):
    (tmp_path / "net.py").write_text(LIGHTNING)
    names = ("cuda-baseline", "cuda-baseline+resident+no-reads+graph", "cuda-baseline+lightning")
    lines, _ = trained(runtime, inspect(f"{tmp_path / 'net.py'}:workload"), tmp_path, *names)
    assert [(line["error"], line["epochs"]) for line in lines] == [(None, 2)] * 3
    assert [line["syncs"] for line in lines] == [1, 0, None]
