"""A LightningModule that logs metrics of torchmetrics: each step's value is that of its batch, and nothing grows."""

import pytest
import torch
from tests.own_files import write
from tests.unit.own.test_lightning_module import LIT, STEP, trained

from laptime.engine.evaluate import evaluate
from laptime.engine.flops import flops_per_sample
from laptime.preflight.inspecting import inspect

NET = "        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))\n"
METRICS = """\
        self.train_acc = torchmetrics.Accuracy(task="multiclass", num_classes=2, validate_args=False)
        self.val_acc = torchmetrics.Accuracy(task="multiclass", num_classes=2, validate_args=False)
        self.curve = torchmetrics.AUROC(task="binary", thresholds=None)
"""
LOGGED = 'self.log_dict({"loss": loss, "acc": (scores.argmax(dim=1) == labels).float().mean()})'
BY_METRIC = 'self.train_acc(scores, labels)\n        self.log_dict({"loss": loss, "acc": self.train_acc})'
VALIDATED = """\
    def validation_step(self, batch, batch_idx):
        inputs, labels = batch
        scores = self.net(inputs)
        self.curve.update(scores.softmax(1)[:, 1], labels)
        self.val_acc.update(scores, labels)
        LOGS

"""


def with_metrics(file, *changes):
    text = "import torchmetrics\n" + LIT.replace(NET, NET + METRICS)
    return write(file, text, *changes).replace(":Workload", ":Lit")


def logging(text):
    return STEP, VALIDATED.replace("LOGS", text) + STEP


IN_STEP = logging('self.log("val_loss", F.cross_entropy(scores, labels))\n        self.log("val_acc", self.val_acc)')
WITHOUT_LOSS = logging('self.log("val_acc", self.val_acc)')
IN_A_HOOK = logging("return F.cross_entropy(scores, labels)")


@pytest.mark.parametrize(
    "validation", [IN_STEP, WITHOUT_LOSS, IN_A_HOOK], ids=["logged", "without a loss", "in a hook"]
)
def test_a_metric_is_the_accuracy_of_its_batches(file, validation):
    name = with_metrics(file, (LOGGED, BY_METRIC), validation)
    assert inspect(name).own.quality == "accuracy"
    _, parts, recipe, _ = trained(name)
    found = evaluate(parts, recipe, recipe.data.test)
    inputs, labels = recipe.data.test.whole()
    with torch.inference_mode():
        scores = parts.model.module.net(inputs)
    assert float(found.correct) == pytest.approx(float((scores.argmax(1) == labels).sum()))


def test_hits_of_training_are_those_of_each_step(file):
    _, parts, *_ = trained(with_metrics(file, (LOGGED, BY_METRIC)))
    for batch in parts.loader.epoch(0):
        inputs, labels = batch.inputs
        with torch.no_grad():
            right = int((parts.model.module.net(inputs).argmax(1) == labels).sum())
        assert float(parts.step(parts, batch).correct) == pytest.approx(right)


def test_lists_in_metrics_do_not_grow_from_step_to_step(file):
    _, parts, recipe, _ = trained(with_metrics(file, (LOGGED, BY_METRIC), IN_STEP))
    for _ in range(3):
        evaluate(parts, recipe, recipe.data.test)
    curve = parts.model.module.curve
    assert len(curve.preds) == 1
    # What was updated without gradients goes on with them.
    assert torch.isfinite(torch.as_tensor(parts.step(parts, next(iter(parts.loader.epoch(0)))).loss_sum))


def test_collections_of_metrics_are_taken_too(file):
    both = 'torchmetrics.MetricCollection({"acc": torchmetrics.Accuracy(task="multiclass", num_classes=2)})'
    logged = "self.both.update(scores, labels)\n        self.log_dict(self.both)"
    name = with_metrics(file, (LOGGED, logged), (NET, f"{NET}        self.both = {both}\n"))
    losses, parts, recipe, spec = trained(name)
    assert spec.data.own.quality == "accuracy"
    assert losses[1] < losses[0]
    found = evaluate(parts, recipe, recipe.data.test)
    assert 0 < float(found.correct) <= 64


def test_operations_are_counted_with_a_metric_in_the_step(file):
    *_, recipe, _ = trained(with_metrics(file, (LOGGED, BY_METRIC)))
    assert flops_per_sample(recipe) == 6 * (20 * 64 + 64 * 2) - 2 * 20 * 64
