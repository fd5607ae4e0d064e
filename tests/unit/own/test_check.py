"""The one-step check, of trainings in users' own files."""

import pytest
import torch
from tests.own_files import DICTIONARY, TUPLE, own_spec, write
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.engine.build import open_data
from laptime.engine.check import check_one_step
from laptime.engine.one_step import Steps
from laptime.engine.still import silence, still
from laptime.preflight.inspecting import inspect
from laptime.world import World


@pytest.mark.parametrize("drawn", ["random.random()", "torch.rand(())"])
def test_both_sides_see_one_reading_of_items_that_are_random(file, drawn):
    changed = ("self.x[i].flatten()", f"self.x[i].flatten() * {drawn}")
    data = inspect(write(file, "import random\n" + DICTIONARY, changed))
    spec = own_spec(data, "cpu-baseline+workers:count=1+fused-optimizer", limit_train=40)
    found = check_one_step(spec, open_data(spec), 16)
    assert found.passed, found
    assert found.loss_error < 1e-6


_STATE = (
    "    batch_size = 16\n",
    "    batch_size = 16\n    state = None\n\n    def __init__(self):\n        self.kept = []\n"
    "        self.queue, self.teacher = [torch.zeros(2)], nn.Linear(2, 2).requires_grad_(False)\n"
    "        self.shown = torch.ones(1).expand(3)\n",
)
_CARRIES = (
    "scores = model(x)",
    "scores = model(x if self.state is None else x + self.state)\n"
    "        self.state = scores.mean().detach()\n        self.kept.append(len(x))\n"
    "        scores = scores * len(self.kept) + self.queue[0] + self.teacher(scores.detach())\n"
    "        self.queue[0] += 1\n        self.teacher.weight.data.mul_(2)",
)


def test_both_sides_begin_with_the_state_that_the_users_object_has_and_leave_it_so(file):
    """As the hidden state of a recurrent net goes on from batch to batch; it had made an exact variant wrong."""
    name = write(file, TUPLE.replace("nn.Dropout(), ", ""), _STATE, _CARRIES)
    data = inspect(name)
    spec = own_spec(data, "cpu-baseline+fused-optimizer")
    opened = open_data(spec)
    weight = opened.workload.teacher.weight.clone()
    found = check_one_step(spec, opened, 16)
    assert found.passed, found
    assert found.loss_error < 1e-6
    assert opened.workload.state is None
    assert torch.equal(opened.workload.queue[0], torch.zeros(2))
    assert torch.equal(opened.workload.teacher.weight, weight)
    assert opened.workload.kept == []


_JOINED = """

def joined(items):
    lines = [x.flatten()[: 3 + int(y)] for x, y in items]
    return torch.stack([y for _, y in items]), torch.cat(lines), torch.tensor([len(line) for line in lines])


class Workload:
    collate_fn = staticmethod(joined)
"""


def test_ranks_take_parts_of_a_batch_that_its_own_collate_makes(file):
    """Targets one behind the other can't be cut by samples; one rank would get all of them."""
    reads = (
        "x, y = batch",
        "y, x, sizes = batch\n        x = nn.utils.rnn.pad_sequence(x.split(sizes.tolist()), True)",
    )
    nets = ("scores = model(x)", "scores = model(F.pad(x, (0, 192 - x.shape[1])).view(-1, 3, 8, 8))")
    data = inspect(write(file, TUPLE, ("\nclass Workload:\n", _JOINED), reads, nets))
    spec = own_spec(data, limit_train=40)
    held = Steps(spec, open_data(spec), World(size=2)).data
    assert [len(labels) for labels, _, _ in held.parts] == [8, 8]
    assert torch.cat([lines for _, lines, _ in held.parts]).equal(held.batch[1])
    assert all(len(lines) == sizes.sum() for _, lines, sizes in held.parts)


@pytest.mark.parametrize(
    "net", [nn.LSTM(8, 8, 2, dropout=0.5), nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5), nn.Dropout()]
)
def test_dropout_of_every_kind_in_torch_is_silent(net):
    images = torch.randn(4, 5, 8)
    net.train()
    silence(net, frozen=False)
    one, two = net(images), net(images)
    torch.testing.assert_close(one, two, rtol=0, atol=0)


DROPS = (
    lambda x: F.dropout(x, 0.5),
    lambda x: F.dropout(input=x, p=0.5, training=True),
    lambda x: F.dropout1d(x, 0.5),
    lambda x: F.alpha_dropout(x, 0.5, True),
    lambda x: torch.dropout(x, 0.5, True),
    lambda x: F.scaled_dot_product_attention(x, x, x, None, 0.5, True),
    lambda x: F.multi_head_attention_forward(
        *(x, x, x, 8, 2, torch.ones(24, 8), None, None, None, False, 0.5, torch.ones(8, 8), None)
    )[0],
    lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, is_causal=True),
)


@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("compiled", [False, True])
def test_functions_that_drop_are_still(drop, compiled):
    x = torch.randn(2, 5, 8)
    called = torch.compile(drop, backend="aot_eager", fullgraph=True) if compiled else drop
    assert not torch.equal(drop(x), drop(x))
    with still():
        torch.testing.assert_close(called(x), called(x), rtol=0, atol=0)
    torch._dynamo.reset()


def test_what_is_computed_again_for_the_gradient_is_still_too(file):
    again = ("model(x)", "checkpoint(lambda t: model(F.dropout(t, 0.5, True)), x, use_reentrant=False)")
    text = "from torch.utils.checkpoint import checkpoint\n" + TUPLE
    data = inspect(write(file, text, again))
    spec = own_spec(data, "cpu-baseline+channels-last")
    found = check_one_step(spec, open_data(spec), 16)
    assert found.passed, found


def test_a_loss_that_drops_by_a_function_is_compared_in_another_layout(file):
    dropping = ("model(x)", "model(F.dropout(x, 0.5, model.training))")
    data = inspect(write(file, TUPLE, dropping))
    spec = own_spec(data, "cpu-baseline+channels-last+bf16")
    found = check_one_step(spec, open_data(spec), 16)
    assert found.passed, found


@pytest.mark.parametrize(("scores", "judged"), [("model(x)", True), ("1e-6 * model(x)", False)])
def test_layers_are_compared_where_a_gradient_is_more_than_rounding(file, scores, judged):
    data = inspect(write(file, TUPLE, ("model(x)", scores)))
    spec = own_spec(data, "cpu-baseline+channels-last")
    found = check_one_step(spec, open_data(spec), 16)
    assert found.passed
    assert (found.layer is not None) == judged
