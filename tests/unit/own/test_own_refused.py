"""What can't be trained with is told before anything trains, with the user's own line and the remedy."""

import io

import pytest
from tests.own_files import DICTIONARY, JUDGED, PIECES, TUPLE, own_spec, place, write

from laptime import worker
from laptime.errors import LaptimeError
from laptime.preflight.inspecting import inspect

_SPLIT = "TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])"
_STREAM = """

class Stream(torch.utils.data.IterableDataset):
    def __len__(self):
        return 64

    def __iter__(self):
        return iter(zip(X, Y))
"""
_BARE = """

class Bare(Dataset):
    def __len__(self):
        return 64
"""
_BROKEN_BACK = """

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return gradient[99]
"""
_LOSS = "scores = model(x)"
_SIGNATURE = "def loss(self, model, batch):"
# In the words of Hugging Face's collators, of a column of texts.
_UNEVEN = "raise ValueError('Unable to create tensor, you should probably activate truncation and/or padding')"
_MADE = "return nn.Sequential("
_FORWARD = "scores = model(x."
_ANCHORS = """\
def anchored(net):
            with torch.inference_mode():
                net.register_buffer("anchors", torch.ones(4))
            return net

        """


@pytest.mark.parametrize(
    ("text", "changes", "code", "said"),
    [
        (TUPLE + _STREAM, [(_SPLIT, "Stream(), Stream()")], "def data", "an IterableDataset (Stream)"),
        (TUPLE + _BARE, [(_SPLIT, "Bare(), Bare()")], "def data", "a Bare without __getitem__"),
        (
            TUPLE,
            [(_SPLIT, "torch.utils.data.DataLoader(X), torch.utils.data.DataLoader(X)")],
            "def data",
            "a DataLoader",
        ),
        (
            TUPLE,
            [("    batch_size = 16", "    batch_size, collate_fn = 16, set")],
            "def data",
            "a set in which no tensor is",
        ),
        (
            TUPLE,
            [
                ("\nclass Workload:", "\nNET = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))\n\n\nclass Workload:"),
                (_LOSS, "scores = NET(x)"),
            ],
            "def loss",
            "a loss that does not come from the net that it is given",
        ),
        (TUPLE, [("nn.Linear(256, 2)", "nn.LazyLinear(2)")], "def model", "(4.weight, 4.bias)"),
        (
            TUPLE,
            [("nn.Linear(256, 2)", "nn.Linear(256, 2, device='meta')")],
            "def model",
            "tensors on the device meta, which hold no numbers (4.weight, 4.bias)",
        ),
        (
            TUPLE,
            [("    def model", "    @torch.inference_mode()\n    def model")],
            "@torch.inference_mode()",
            "tensors of torch.inference_mode(), to which nothing can be written (0.weight, 0.bias, 4.weight, 4.bias)",
        ),
        (
            TUPLE,
            [(_MADE, f"{_ANCHORS}{_MADE[:7]}anchored(nn.Sequential("), ("Linear(256, 2))", "Linear(256, 2)))")],
            "def model",
            "to which nothing can be written (anchors)",
        ),
        (
            f"import argparse\nPARSER = argparse.ArgumentParser()\nPARSER.add_argument('--data', required=True)\n"
            f"PARSER.parse_args()\n{TUPLE}",
            [],
            "PARSER.parse_args()",
            "SystemExit: 2; no arguments are given here, so let those that it requires have defaults",
        ),
        (
            f"import sys\nDATA = sys.argv[1]\n{TUPLE}",
            [],
            "DATA = sys.argv[1]",
            "IndexError: list index out of range; no arguments are given here, so let those that it requires have",
        ),
        (TUPLE, [(_LOSS, "scores = model(x.cuda())")], "x.cuda()", "leave .cuda() and .to(...) out, since net and"),
        (
            TUPLE,
            [(_MADE, "return nn.DataParallel(nn.Sequential("), ("Linear(256, 2))", "Linear(256, 2)))")],
            "def model",
            "a net in DataParallel",
        ),
        (
            TUPLE,
            [
                (_MADE, "return nn.parallel.DistributedDataParallel(nn.Sequential("),
                ("Linear(256, 2))", "Linear(256, 2)))"),
            ],
            "return nn",
            "leave it out, since the rungs ddp and dp wrap",
        ),
        (
            TUPLE,
            [
                (
                    "import torch\n",
                    "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
                ),
                (_MADE, "return FSDP(nn.Sequential("),
                ("Linear(256, 2))", "Linear(256, 2)))"),
            ],
            "return FSDP",
            "leave it out, since the rungs ddp and dp wrap",
        ),
        (
            f"import torch.distributed\ntorch.distributed.init_process_group('gloo')\n{TUPLE}",
            [],
            "torch.distributed.init",
            "leave it out, since the rungs ddp and dp wrap",
        ),
        (
            f"import os\nRANK = int(os.environ['LOCAL_RANK'])\n{TUPLE}",
            [],
            "RANK =",
            "KeyError: 'LOCAL_RANK'; torchrun alone sets it, so give it a default",
        ),
        (
            f"import click\n{TUPLE}\n@click.command()\ndef main():\n    pass\n\nmain(standalone_mode=True)\n",
            [],
            "main(standalone",
            "SystemExit: 0; put what is a program of its own behind `if __name__ == '__main__':`",
        ),
        (
            f"from absl import flags\nflags.DEFINE_integer('width', 2, 'classes')\n{TUPLE}",
            [("Linear(256, 2)", "Linear(256, flags.FLAGS.width)")],
            "Linear(256, flags",
            "is not called here: say FLAGS(sys.argv) behind their definitions",
        ),
        (
            TUPLE,
            [("class Workload:\n", f"class Workload:\n    def collate_fn(self, items):\n        {_UNEVEN}\n\n")],
            "raise ValueError",
            "a Trainer leaves out columns that the net does not take: do so in data(), by select_columns() say",
        ),
        (
            f"import sys\n{TUPLE}\nsys.exit(3)\n",
            [],
            "sys.exit(3)",
            "SystemExit: 3 (",
        ),
        (TUPLE, [("def data(self)", "def data(self, folder)")], "def data", "'folder'"),
        (TUPLE, [("def model(self)", "def model()")], "def model", "takes 0 positional arguments"),
        (TUPLE, [(_SIGNATURE, "def loss(self, model, x, y):")], "def loss", "'y'"),
        (
            TUPLE,
            [("class Workload:\n", "class Workload:\n    def __init__(self, folder):\n        pass\n\n")],
            "def __i",
            "'folder'",
        ),
        (
            PIECES,
            [("def optimizer(self, parameters, lr)", "def optimizer(self, parameters)")],
            "def opti",
            "optimizer()",
        ),
        (PIECES, [("steps_per_epoch, epochs):", "steps_per_epoch):")], "def schedule", "schedule()"),
        (JUDGED, [("def evaluate(self, model, batches)", "def evaluate(self, model)")], "def evaluate", "evaluate()"),
        (TUPLE + _BROKEN_BACK, [(_LOSS, "scores = Doubled.apply(model(x))")], "return gradient[99]", "IndexError"),
        (
            TUPLE,
            [(_LOSS, "scores = model(x).exp()\n        scores.mul_(2)")],
            "scores = model(x).exp()",
            "modified by an inplace operation",
        ),
        (
            TUPLE,
            [(_LOSS, "scores = model(x) + getattr(self, 'last', 0)\n        self.last = scores.mean().exp()")],
            "def loss",
            "backward through the graph a second time",
        ),
        (
            TUPLE,
            [("(scores.argmax(1) == y).float().mean()", "x.new_tensor(0.0 if model.training else 37.5)")],
            "def loss",
            "on the test data gave 37.5 as accuracy",
        ),
    ],
)
def test_it_is_refused_with_the_line(file, text, changes, code, said):
    with pytest.raises(LaptimeError) as caught:
        inspect(write(file, text, *changes))
    assert said in str(caught.value)
    assert place(file, code) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_item_of_another_signature_is_told_with_its_line(file):
    with pytest.raises(LaptimeError, match="reading item 0 of the training data failed: TypeError") as caught:
        inspect(write(file, DICTIONARY, ("def __getitem__(self, i)", "def __getitem__(self)")))
    assert place(file, "def __getitem__") in str(caught.value)


def test_a_share_above_one_that_shows_late_ends_the_run_with_the_line(file, tmp_path):
    """The first samples of the test data are all wrong, so a percentage looks like a share."""
    late = "torch.where(x.mean() > 5, 80.0, 0.0)"
    moved = "X[90:] += 50.0\n\n\nclass Workload:"
    name = write(file, TUPLE, ("(scores.argmax(1) == y).float().mean()", late), ("\nclass Workload:", moved))
    record = worker.run(own_spec(inspect(name), "cpu-baseline"), tmp_path / "run")
    assert record.status == "failed"
    assert "as accuracy on the test data: return a share from 0 to 1" in record.error
    assert place(file, "def loss") in record.error


_HOLDS = """
import threading


class Holding(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self.lock = threading.Lock()

"""


def test_a_net_that_can_not_be_copied_trains_without_what_copies_it(file, tmp_path):
    name = write(file, TUPLE.replace("\nclass Workload", _HOLDS + "\nclass Workload"), (_MADE, "return Holding("))
    refused = inspect(name).own.refused
    why = "its net can't be copied (TypeError: cannot pickle '_thread.lock' object)"
    assert {refused[name] for name in ("channels-last", "dead-taps", "products", "ema", "ddp")} == {why}
    spec = own_spec(inspect(name), "cpu-optimized")
    assert "channels-last" not in {o.name for o in spec.optimizations}
    record = worker.run(spec, tmp_path / "run")
    assert (record.status, record.error) == ("done", None)
    assert record.check.passed


@pytest.mark.parametrize("mark", ["\ufeff", "# -*- coding: latin-1 -*-\n# caf\xe9\n"])
def test_a_file_in_another_encoding_is_read_as_python_reads_it(file, mark):
    write(file, TUPLE)
    file.write_bytes((mark + file.read_text()).encode("utf-8" if mark == "\ufeff" else "latin-1"))
    assert inspect(f"{file}:Workload").own.quality == "accuracy"


@pytest.mark.parametrize(
    ("changes", "code", "helps"),
    [
        ([("(scores, y)", "(scores, y.float())")], "(scores, y.float())", "give labels.long()"),
        ([("(scores, y)", "(scores, y + 1)")], "(scores, y + 1)", "give it more outputs, or other numbers"),
        ([(_LOSS, "scores = model(x.double())")], _FORWARD, "give it inputs.float()"),
        ([(_LOSS, "scores = model(x.byte())")], _FORWARD, "give it inputs.float()"),
        ([(_MADE, f"{_MADE}nn.Flatten(), "), ("model(x)", "model(x.double())")], _FORWARD, "give it inputs.float()"),
        ([(_LOSS, "scores = F.embedding(y + 9, model(x))")], "scores = F.embedding", "give it more rows, or other"),
        ([("    batch_size = 16", "    batch_size = int(input())")], "int(input())", "leave input() out"),
        ([("import torch\n", "import nothing_like_it\n")], "import nothing_like_it", "or put it beside the file"),
    ],
)
def test_common_mistakes_are_told_with_what_helps(file, monkeypatch, changes, code, helps):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(LaptimeError) as caught:
        inspect(write(file, TUPLE, *changes))
    assert helps in str(caught.value)
    assert place(file, code) in str(caught.value)


def test_where_only_a_part_of_a_package_is_missing_nothing_is_to_be_installed(file):
    with pytest.raises(LaptimeError, match=r"No module named 'torch\.nothing'") as caught:
        inspect(write(file, TUPLE, ("import torch\n", "import torch\nimport torch.nothing\n")))
    assert "install" not in str(caught.value)
