"""Test data that go through training_step(), where there is no loss of validation, leave the training as it is."""

import pytest
import torch
from tests.unit.conftest import make_spec
from tests.unit.own.test_lightning_module import lit

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.engine.build import build, make_recipe, open_data
from laptime.engine.evaluate import evaluate, totals
from laptime.engine.loop import train_epoch
from laptime.measure.marks import StepMarks
from laptime.preflight.inspecting import inspect

_MADE = "super().__init__()\n        self.net"
_HELD = """super().__init__()
        self.register_buffer("center", torch.zeros(2))
        self.register_buffer("sparse", torch.eye(2).to_sparse())
        self.rest, self.seen, self.steps = torch.zeros(2), [], 0
        self.metric = torchmetrics.Accuracy("multiclass", num_classes=2)
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
        self.teacher = copy.deepcopy(self.net[2]).requires_grad_(False)
        self.other"""
_LOSS = "loss = F.cross_entropy(scores, labels)"
_KEPT = {
    "a buffer in place": "scores = scores - self.center; self.center.lerp_(scores.detach().mean(0), 0.5)",
    "a buffer anew": "scores = scores - self.center; self.center = self.center + scores.detach().mean(0)",
    "a plain tensor": "scores = scores - self.rest; self.rest = self.rest + scores.detach().mean(0)",
    "a list": "self.seen.append(scores.detach().mean(0)); scores = scores - torch.stack(self.seen).mean(0)",
    "a count": "self.steps += 1; scores = scores * self.steps",
    "a teacher's data": (
        "scores = scores - self.teacher.weight.mean()\n        "
        "for own, other in zip(self.teacher.parameters(), self.net[2].parameters()):\n            "
        "own.data = own.data * 0.5 + other.data * 0.5"
    ),
    "a teacher": (
        "scores = scores - self.teacher.weight.mean(); self.teacher.weight.lerp_(self.net[2].weight.detach(), 0.5)"
    ),
}


@pytest.mark.parametrize("kept", _KEPT)
def test_evaluation_leaves_what_training_steps_change(file, kept):
    imported = ("from torch import nn\n", "import copy\nimport torchmetrics\nfrom torch import nn\n")
    name = lit(
        file, imported, (_MADE, _HELD), (_LOSS, f"{_KEPT[kept]}\n        self.metric(scores, labels)\n        {_LOSS}")
    )
    data = inspect(name)
    spec = make_spec(data=data, workload=data.own.name, batch_size=data.own.batch_size)

    def losses(judged):
        recipe = make_recipe(spec, open_data(spec), ())
        parts, found = build(recipe, StepMarks()), []
        evaluate(parts, recipe, recipe.data.test)  # a teacher that is like its pupil does not move yet
        for epoch in range(3):
            found.append(totals(list(train_epoch(parts, epoch)))[0])
            tests = [evaluate(parts, recipe, recipe.data.test) for _ in range(2 * judged)]
            assert (
                len({(float(t.loss_sum), float(t.correct)) for t in tests}) == judged
            )  # batches alike, whatever came before
        return found

    assert losses(True) == losses(False)


def test_a_step_that_fails_on_test_data_leaves_all_as_it_was(file):
    imported = ("from torch import nn\n", "import copy\nimport torchmetrics\nfrom torch import nn\n")
    late = f"{_KEPT['a teacher']}; self.center += 1; self.seen.append(1)\n        assert self.training, 'no test'\n"
    data = open_own(*place_of(lit(file, imported, (_MADE, _HELD), (_LOSS, f"{late}        {_LOSS}"))))
    net, batch = data.workload.model().eval(), data.test.batch(range(8))
    before = [tensor.clone() for tensor in net.state_dict().values() if tensor.layout == torch.strided]
    with pytest.raises(AssertionError, match="no test"):
        net(batch)
    assert net.module.seen == []
    after = [tensor for tensor in net.state_dict().values() if tensor.layout == torch.strided]
    assert all(map(torch.equal, before, after))
    net.train()(batch)
    assert float(net.module.center.sum()) == 2
