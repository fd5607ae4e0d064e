"""Workloads of users' own, as files: small nets on data that they make themselves."""

from __future__ import annotations

from pathlib import Path

from laptime.spec import DataSpec, RunSpec
from laptime.variants import resolve

IMPORTS = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

X = torch.randn(96, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = (X.mean(dim=(1, 2, 3)) > 0).long()
"""

TUPLE = (
    IMPORTS
    + """
class Workload:
    batch_size = 16

    def data(self):
        return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])

    def model(self):
        return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))

    def loss(self, model, batch):
        x, y = batch
        scores = model(x)
        return F.cross_entropy(scores, y), (scores.argmax(1) == y).float().mean()
"""
)

# Backward through it fails in bf16 on a CPU, in words of torch's own.
LINE_OF_SPARSE = "scores = torch.sparse.mm(torch.eye(len(x)).to_sparse(), model(x))"
SPARSE = ("scores = model(x)", LINE_OF_SPARSE)

# A kernel of which the outermost taps meet padding alone on 8x8.
WIDE = ("nn.Conv2d(3, 4, 3, padding=1)", "nn.Conv2d(3, 4, 17, padding=8)")

# Weights that are computed before each call, of which torch copies none: as HiFi-GAN, WaveNet and its likes have them.
NORMALIZED = (
    ("nn.Conv2d(3, 4, 3, padding=1)", "nn.utils.weight_norm(nn.Conv2d(3, 4, 17, padding=8))"),
    ("nn.Linear(256, 2)", "nn.utils.spectral_norm(nn.Linear(256, 2))"),
)

# The pieces that everybody's training has: a bound for the gradient, an optimizer and a schedule of its own.
NORM = 0.05
SCHEDULE = "return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / whole)"
PIECES = TUPLE.replace("nn.Dropout(), ", "").replace(
    "    batch_size = 16\n",
    f"""    batch_size = 16
    learning_rate = 0.1
    clip_norm = {NORM}

    def optimizer(self, parameters, lr):
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)

    def schedule(self, optimizer, steps_per_epoch, epochs):
        whole = steps_per_epoch * epochs
        {SCHEDULE}
""",
)
# Kernels along a line and through a film, with taps that meet padding alone.
_NET = "nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2)"
LINE = (_NET, "nn.Flatten(2), nn.AdaptiveAvgPool1d(2), nn.Conv1d(3, 4, 5, padding=2), nn.Flatten(), nn.Linear(8, 2)")
FILM = (
    _NET,
    "nn.Unflatten(3, (2, 4)), nn.MaxPool3d((8, 1, 2)), nn.Conv3d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(16, 2)",
)
# Judged by what is no mean over batches: F1 of all test data.
F1 = """
    def evaluate(self, model, batches):
        both = [(model(x).argmax(1), y) for x, y in batches]
        found, true = (torch.cat(side) for side in zip(*both))
        hits = (found * true).sum()
        return 2 * hits / (found.sum() + true.sum())
"""
JUDGED = TUPLE + F1
# Ten times as often drawn where the label is 1.
WEIGHTS = """
    def sample_weights(self, train):
        return 1 + 9 * train.tensors[1]
"""
WEIGHTED = TUPLE + WEIGHTS
# Goes backward through the net first, as for the worst inputs, and twice through the data, whose number it asks for.
ATTACKED = (
    "        both =",
    "        for x, y in batches:\n            with torch.enable_grad():\n"
    "                (F.cross_entropy(model(x), y) / len(batches)).backward()\n        both =",
)

# A file that is a script, too, and asks for its arguments where it is imported.
ARGUMENTS = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
WIDTH = parser.parse_args().width
"""

# As the models of Hugging Face's transformers: called with the batch's names, the loss in what they return.
DICTIONARY = (
    IMPORTS
    + """
from types import SimpleNamespace

class Rows(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"input_values": self.x[i].flatten(), "labels": self.y[i]}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(192, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, input_values, labels=None):
        logits = self.layers(input_values)
        return SimpleNamespace(loss=F.cross_entropy(logits, labels), logits=logits)

class Workload:
    name = "rows"
    batch_size = 16

    def data(self):
        return Rows(X[:64], Y[:64]), Rows(X[64:], Y[64:])

    def model(self):
        return Net()

    def loss(self, model, batch):
        return model(**batch).loss

    def optimizer(self, parameters, lr):
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)
"""
)

# As the batches of transformers' tokenizers: a UserDict whose values are attributes too, and which pickles by itself.
ENCODED = (
    DICTIONARY.replace(
        '    name = "rows"',
        """\
    name = "encoded"

    def collate_fn(self, items):
        return Encoding(default_collate(items), encodings=[None] * len(items))
""",
    )
    + """
from collections import UserDict
from torch.utils.data import default_collate

class Encoding(UserDict):
    def __init__(self, data, encodings):
        super().__init__(data)
        self.encodings = encodings

    def __getattr__(self, name):
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name)

    def __getstate__(self):
        return {"data": self.data, "encodings": self.encodings}

    def __setstate__(self, state):
        self.data, self.encodings = state["data"], state["encodings"]
"""
)

# Draws from all three generators of a process: for the split, for each item, in the net and in the loss.
AUGMENTED = (
    "import random\n\nimport numpy as np\n"
    + IMPORTS
    + """
class Rows(Dataset):
    def __init__(self, rows):
        self.rows = list(rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        x = X[row] * random.uniform(0.5, 1.5) + np.random.normal(scale=0.1)
        for _ in range(row % 3):
            x = x + 0.1 * torch.randn(3, 8, 8)
        return x, Y[row]

class Workload:
    batch_size = 8

    def data(self):
        rows = np.random.permutation(96)
        random.shuffle(rows)
        return Rows(rows[:40]), Rows(rows[40:52])

    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))

    def loss(self, model, batch):
        x, y = batch
        return F.cross_entropy(model(x * np.random.uniform(0.9, 1.1)), y)
"""
)


def write(path: Path, text: str, *changes: tuple[str, str]) -> str:
    """Writes a file with some of its text replaced, and returns the workload's name."""
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
    return f"{path}:Workload"


def own_spec(data: DataSpec, variant: str = "cpu-baseline", **changes: object) -> RunSpec:
    """A short run with what a variant has and the file does not refuse; `+name` brings that, too."""
    chosen = resolve(variant, tuple(data.own.refused)).optimizations
    fields = {"workload": data.own.name, "variant": variant, "optimizations": chosen, "data": data}
    return RunSpec(**fields, **{"batch_size": 16, "warmup_epochs": 0, **changes})


def place(file: Path, code: str) -> str:
    """How a complaint begins to say where a file's first line with some code is."""
    number = next(i for i, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1) if code in line)
    return f"({file.name}, line {number}: "


# An image folder beside the file, whose items differ in each reading.
FOLDER = (
    "from pathlib import Path\n\nfrom PIL import Image\n"
    "from torchvision import transforms as T\nfrom torchvision.datasets import ImageFolder\n"
    + IMPORTS
    + """
ROOT = Path(__file__).parent / "photographs"
if not ROOT.is_dir():
    for number in range(40):
        place = ROOT / f"class_{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        noise = torch.Generator().manual_seed(number)
        pixels = torch.randint(0, 200, (12, 12, 3), generator=noise) + 50 * (number % 2)
        Image.fromarray(pixels.byte().numpy()).save(place / f"{number}.jpg")

class Workload:
    batch_size = 8

    def data(self):
        chance = T.Compose([T.RandomCrop(8), T.RandomHorizontalFlip(), T.ToTensor()])
        test = ImageFolder(ROOT, T.Compose([T.CenterCrop(8), T.ToTensor()]))
        order = torch.randperm(40).tolist()
        return torch.utils.data.Subset(ImageFolder(ROOT, chance), order[:30]), torch.utils.data.Subset(test, order[30:])

    def model(self):
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))

    def loss(self, model, batch):
        x, y = batch
        scores = model(x)
        return F.cross_entropy(scores, y), (scores.argmax(1) == y).float().mean()
"""
)
