"""The documentation's examples for what stands in other frameworks, read from the page, train as those train.

Where a framework is not installed, a few lines stand in its place, and the training is held to a loop by hand.
"""

import re
import sys
from importlib.util import find_spec
from math import prod
from pathlib import Path

import pytest
import torch
from tests.own_files import own_spec
from tests.plain_loop import run
from torch.nn.functional import cross_entropy
from torch.utils.data import Sampler

from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect
from laptime.values.draws import seed_all

PAGE = Path(__file__).parents[3] / "docs" / "own-workload.md"
_RATE, _EPOCHS = 0.01, 2
_TORCH = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
_ROWS = """
class Rows(list):
    def select_columns(self, names):
        return Rows({name: row[name] for name in names} for row in self)


def rows(count, seed):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 9, (count,), generator=draw).tolist()
    texts = [torch.randint(2, 40, (length,), generator=draw).tolist() for length in lengths]
    names = ("text", "input_ids", "attention_mask", "label")
    return [dict(zip(names, (str(ids), ids, [1] * len(ids), int(ids[0] < 9)))) for ids in texts]

"""
_STAND_IN = """
from types import SimpleNamespace
tokenizer, NAME = None, ""
train_set, test_set = Rows(rows(40, 0)), Rows(rows(16, 1))


class AutoModelForSequenceClassification(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(40, 8, padding_idx=0), nn.LayerNorm(8), nn.Linear(8, 2)

    @classmethod
    def from_pretrained(cls, name):
        return cls()

    def forward(self, input_ids, attention_mask, labels):
        found = self.words(input_ids) * attention_mask[..., None]
        logits = self.head(self.norm(found.sum(dim=1)))
        return SimpleNamespace(loss=F.cross_entropy(logits, labels), logits=logits)


class DataCollatorWithPadding:
    def __init__(self, tokenizer):
        pass

    def __call__(self, items):
        padded = {
            name: nn.utils.rnn.pad_sequence([torch.tensor(item[name]) for item in items], batch_first=True)
            for name in ("input_ids", "attention_mask")
        }
        return {**padded, "labels": torch.tensor([item["label"] for item in items])}


def get_scheduler(name, optimizer, warmup, steps):
    assert name == "linear"
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(n / warmup, (steps - n) / (steps - warmup)))
"""
_REAL = """
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, **{f"w{n}": n for n in range(2, 40)}}, unk_token="[UNK]"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
train_set, test_set = Dataset.from_list(rows(40, 0)), Dataset.from_list(rows(16, 1))
NAME = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)


class AutoModelForSequenceClassification:
    from_pretrained = BertForSequenceClassification
"""


def example(heading: str) -> str:
    """The code below a heading of the page."""
    below = PAGE.read_text(encoding="utf-8").partition(f"### {heading}\n")[2]
    found = re.search(r"```python\n(.*?)```", below, re.DOTALL)
    assert found
    return found[1]


def trained(file: Path, text: str, kind: str, tmp_path: Path, variant: str = "cpu-baseline") -> list[float]:
    file.write_text(text, encoding="utf-8")
    data = inspect(f"{file}:{kind}")
    spec = own_spec(data, variant, epochs=_EPOCHS, learning_rate=_RATE, batch_size=data.own.batch_size, profile="none")
    record = run(spec, tmp_path / variant)
    assert (record.status, record.error) == ("done", None)
    return [epoch.train_loss for epoch in record.epochs]


def fine_tuning(before: str) -> str:
    """The page's example behind what its names stand for."""
    text = example("Hugging Face's Trainer")
    imports, _, rest = text.partition("\n\n\n")
    assert (
        imports == "from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, get_scheduler"
    )
    kept = "from transformers import DataCollatorWithPadding, get_scheduler\n" if before == _REAL else ""
    return f"{kept}{_TORCH}{_ROWS}{before}\n\n{rest}"


@pytest.mark.parametrize("variant", ["cpu-baseline", "cpu-fused-optimizer"])
def test_a_fine_tuning_trains_as_a_loop_by_hand(file, tmp_path, variant):
    losses = trained(file, fine_tuning(_STAND_IN), "FineTuning", tmp_path, variant)
    module = sys.modules[file.stem]
    seed_all(0)
    net = module.AutoModelForSequenceClassification()
    flat = [net.norm.weight, net.norm.bias, net.head.bias]
    groups = [
        {"params": [net.words.weight, net.head.weight], "weight_decay": 0.01},
        {"params": flat, "weight_decay": 0},
    ]
    optimizer, collate, step = torch.optim.AdamW(groups, lr=_RATE), module.DataCollatorWithPadding(None), 0
    found = []
    for epoch in range(_EPOCHS):
        total = 0.0
        for chosen in permutation(40, 0, epoch).split(16):
            for group in optimizer.param_groups:
                group["lr"] = _RATE * min(step / 2, (6 - step) / 4)
            loss = net(**collate([module.train_set[n] for n in chosen.tolist()])).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            total, step = total + len(chosen) * loss.item(), step + 1
        found.append(total / 40)
    assert losses == pytest.approx(found, abs=1e-5)


class Order(Sampler):
    """laptime's order of 40 samples, epoch by epoch."""

    def __init__(self):
        self.epoch = -1

    def __len__(self):
        return 40

    def __iter__(self):
        self.epoch += 1
        return iter(permutation(40, 0, self.epoch).tolist())


def test_a_fine_tuning_trains_as_the_trainer_itself(file, tmp_path):
    for name in ("transformers", "datasets", "tokenizers", "accelerate"):
        pytest.importorskip(name)
    losses = trained(file, fine_tuning(_REAL), "FineTuning", tmp_path)
    module = sys.modules[file.stem]
    from transformers import Trainer, TrainingArguments

    class Ordered(Trainer):
        def _get_train_sampler(self, *_):
            return Order()

    chosen = {"learning_rate": _RATE, "weight_decay": 0.01, "warmup_steps": 2, "per_device_train_batch_size": 16}
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}
    seed_all(0)
    trainer = Ordered(
        model_init=module.FineTuning().model,
        args=TrainingArguments(str(tmp_path), **chosen, **quiet, num_train_epochs=_EPOCHS, seed=0),
        train_dataset=module.train_set,
        data_collator=module.FineTuning.collate_fn,
    )
    trainer.train()
    steps = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    epochs = [steps[:3], steps[3:]]
    assert losses == pytest.approx([sum(map(prod, zip((16, 16, 8), e, strict=True))) / 40 for e in epochs], abs=1e-5)


_USED = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

X = torch.randn(96, 12, generator=torch.Generator().manual_seed(0))


def points(start, stop):
    return TensorDataset(X[start:stop], (X[start:stop].sum(dim=1) > 0).long())


class Net(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 2))


"""
_CONF = """
batch_size: 16
optimizer: {_target_: torch.optim.SGD, lr: 0.1, momentum: 0.9}
net: {_target_: FILE.Net, width: 4}
data:
  train: {_target_: FILE.points, start: 0, stop: 64}
  test: {_target_: FILE.points, start: 64, stop: 96}
"""
# What the example takes of Hydra, where that is not installed.
_HYDRA = """
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
import sys

import yaml

at = []


@contextmanager
def initialize(version_base, config_path):
    at.append(Path(sys._getframe(2).f_code.co_filename).parent / config_path)
    yield


def compose(name, overrides):
    read = yaml.safe_load((at[-1] / f"{name}.yaml").read_text())
    for key, _, value in (one.partition("=") for one in overrides):
        group, _, last = key.partition(".")
        read[group][last] = yaml.safe_load(value)
    return _named(read)


def _named(read):
    return SimpleNamespace(**{k: _named(v) for k, v in read.items()}) if isinstance(read, dict) else read
"""
_UTILS = """
from importlib import import_module


def instantiate(config, **others):
    options = {**vars(config), **others}
    module, _, name = options.pop("_target_").rpartition(".")
    return getattr(import_module(module), name)(**options)
"""


@pytest.fixture
def hydra(tmp_path):
    """Hydra where it is installed, else a package beside the user's file that is forgotten after the test."""
    if find_spec("hydra"):
        yield
        return
    (tmp_path / "hydra").mkdir()
    (tmp_path / "hydra" / "__init__.py").write_text(_HYDRA)
    (tmp_path / "hydra" / "utils.py").write_text(_UTILS)
    yield
    for name in ("hydra", "hydra.utils"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("hydra")
@pytest.mark.filterwarnings("ignore:register_new_resolver:UserWarning", "ignore:Implicit conversion from:FutureWarning")
def test_a_training_of_hydra_s_settings_trains_as_a_loop_by_hand(file, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(_CONF.replace("FILE", file.stem))
    losses = trained(file, f"{_USED}{example('Hydra')}", "Configured", tmp_path)
    module = sys.modules[file.stem]
    assert "conf/config.yaml" in inspect(f"{file}:Configured").own.beside
    seed_all(0)
    net, (x, y) = module.Net(16), module.points(0, 64).tensors
    optimizer, found = torch.optim.SGD(net.parameters(), lr=_RATE, momentum=0.9), []
    for epoch in range(_EPOCHS):
        total = 0.0
        for chosen in permutation(64, 0, epoch).split(16):
            loss = cross_entropy(net(x[chosen]), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 4
        found.append(total)
    assert losses == pytest.approx(found, abs=1e-6)
