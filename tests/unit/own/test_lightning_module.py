"""A LightningModule with its data as a workload: it trains as by hand, and what needs a Trainer is refused by line."""

import copy
import re
import sys
from pathlib import Path

import pytest
import torch
from tests.own_files import write
from tests.unit.conftest import make_spec

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.engine.build import build, make_recipe, open_data
from laptime.engine.check import check_one_step
from laptime.engine.evaluate import evaluate, totals
from laptime.engine.loop import train_epoch
from laptime.errors import LaptimeError, RunError, UsageError
from laptime.measure.marks import StepMarks
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec

PAGE = (Path(__file__).parents[3] / "docs" / "lightning.md").read_text(encoding="utf-8")
LIT = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "(LightningModule)" in block)
ADAMW = "return torch.optim.AdamW(self.parameters(), lr=1e-3)"
STEP = "    def configure_optimizers(self):"


def lit(file, *changes, attribute="Lit"):
    return write(file, LIT, *changes).replace(":Workload", f":{attribute}")


def opened(file, *changes):
    return open_own(*place_of(lit(file, *changes)))


def trained(name, *optimizations, **changes):
    chosen = tuple(OptimizationSpec(name=o) for o in optimizations)
    data = inspect(name)
    spec = make_spec(data=data, workload=data.own.name, batch_size=data.own.batch_size, optimizations=chosen, **changes)
    recipe = make_recipe(spec, open_data(spec), chosen)
    parts = build(recipe, StepMarks())
    return [totals(list(train_epoch(parts, e)))[0] for e in range(2)], parts, recipe, spec


def by_hand(module, batches):
    """The same two epochs by the module's own steps on `batches(points, epoch)`: losses, the module and its points."""
    points = module.Points()
    points.setup("fit")
    torch.manual_seed(3)
    own = module.Lit()
    own.log = lambda *_, **__: None
    optimizer, losses = own.configure_optimizers(), []
    for epoch in range(2):
        total = 0.0
        for batch in batches(points, epoch):
            loss = own.training_step(batch, 0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * 32
        losses.append(total / 256)
    return losses, own, points


def test_the_documentations_module_trains_as_it_does_by_hand(file):
    found, parts, recipe, _ = trained(lit(file), seed=3)

    def batches(points, epoch):
        chosen = permutation(256, 3, epoch).split(32)
        return (tuple(t[some] for t in points.train.tensors) for some in chosen)

    losses, *_ = by_hand(sys.modules[file.stem], batches)
    assert found == pytest.approx(losses, rel=1e-5)
    assert type(parts.optimizer) is torch.optim.AdamW
    assert recipe.notes == ()
    test = evaluate(parts, recipe, recipe.data.test)
    assert (test.count, 0 < float(test.correct) <= 64) == (64, True)


def test_what_is_found_in_it(file):
    found = inspect(lit(file))
    assert (found.train_count, found.test_count) == (256, 64)
    assert (found.own.batch_size, found.own.learning_rate, found.own.quality) == (32, 1e-3, "accuracy")
    assert (found.own.attribute, found.own.lightning) == ("Lit", True)
    assert {"resident", "fused-optimizer", "graph"}.isdisjoint(found.own.refused)


def test_optimizations_and_the_trainer_work_on_it(file):
    plain, *_ = trained(lit(file))
    found, _, recipe, spec = trained(f"{file}:Lit", "resident", "no-reads", "fused-optimizer")
    assert found == pytest.approx(plain, rel=1e-4)
    assert check_one_step(spec, recipe.data, 32).passed
    assert copy.deepcopy(recipe.model).note is not recipe.model.note
    _, parts, *_ = trained(f"{file}:Lit", "lightning")
    assert parts.driver is not None


def test_the_test_data_go_through_validation_step_where_it_has_a_loss(file):
    step = "    def validation_step(self, batch, batch_idx):\n        self.log('val_loss', torch.tensor(7.0))\n\n"
    _, parts, recipe, spec = trained(lit(file, (STEP, step + STEP)))
    counts = evaluate(parts, recipe, recipe.data.test)
    assert float(counts.loss_sum) == 7.0 * 64
    assert (counts.correct, spec.data.own.quality) == (None, "loss")


def test_groups_of_parameters_keep_their_options_and_the_ratio_of_their_rates(file):
    groups = "[{'params': self.net[0].parameters()}, {'params': self.net[2].parameters(), 'lr': 1e-2}]"
    name = lit(file, (ADAMW, f"return torch.optim.SGD({groups}, lr=1e-3, momentum=0.5)"))
    _, parts, *_ = trained(name, learning_rate=2e-3)
    assert [(g["lr"], g["momentum"], len(g["params"])) for g in parts.optimizer.param_groups] == [
        (2e-3, 0.5, 2),
        (2e-2, 0.5, 2),
    ]


SCHEDULES = "torch.optim.lr_scheduler."


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("LinearLR(made)", [0.1, 0.01]),
        ("LambdaLR(made, lambda step: step / 10)", [0.1, 0.01]),
        ("OneCycleLR(made, max_lr=[0.2, 0.02], total_steps=9)", [0.2, 0.02]),
    ],
)
def test_rates_are_those_before_a_schedule(file, schedule, rates):
    groups = "[{'params': self.net[0].parameters()}, {'params': self.net[2].parameters(), 'lr': 0.01}]"
    made = f"made = torch.optim.Adam({groups}, lr=0.1, betas=(0.8, 0.99))"
    module = open_own(*place_of(lit(file, (ADAMW, f"{made}\n        return [made], [{SCHEDULES}{schedule}]")))).workload
    assert module.learning_rate == rates[0]
    found = module.optimizer(list(module.model().parameters()), rates[0]).param_groups
    assert [g["lr"] for g in found] == pytest.approx(rates)
    assert [g["betas"] for g in found] == [(0.8, 0.99)] * 2
    assert {"initial_lr", "max_lr", "max_momentum"}.isdisjoint(found[0])


def test_the_group_of_the_first_parameters_need_not_come_first(file):
    groups = "[{'params': self.net[2].parameters()}, {'params': self.net[0].parameters(), 'lr': 1e-4}]"
    name = lit(file, (ADAMW, f"return torch.optim.SGD({groups}, lr=1e-3)"))
    assert inspect(name).own.learning_rate == 1e-3


def test_a_part_that_is_not_trained_stays_as_it_is(file):
    _, parts, recipe, _ = trained(lit(file, ("self.parameters(), lr", "self.net[2].parameters(), lr")))
    first = recipe.data.workload.model().module.net[0].weight
    assert len(parts.optimizer.param_groups[0]["params"]) == 2
    assert parts.model.module.net[0].weight.shape == first.shape
    torch.manual_seed(recipe.seed)
    assert torch.equal(parts.model.module.net[0].weight, recipe.data.workload.model().module.net[0].weight)


def test_the_gradient_is_bounded_where_the_module_says_so(file):
    name = lit(file, ("class Lit(LightningModule):\n", "class Lit(LightningModule):\n    clip_norm = 1e-4\n\n"))
    _, parts, recipe, spec = trained(name)
    parts.step(parts, next(iter(parts.loader.epoch(0))))
    assert (recipe.clip_norm, spec.data.own.clip_norm) == (1e-4, 1e-4)
    parts.forward(parts.net, next(iter(parts.loader.epoch(0)))).loss.backward()
    parts.clip(parts)
    norm = torch.cat([p.grad.flatten() for p in parts.model.parameters()]).norm()
    assert float(norm) == pytest.approx(1e-4, rel=1e-3)


def test_loaders_may_be_the_modules_own_and_data_may_be_named(file):
    loader = "return DataLoader(TensorDataset(torch.ones(8, 20), torch.ones(8).long()), 4)"
    loaders = f"    def train_dataloader(self):\n        {loader}\n\n    val_dataloader = train_dataloader\n\n"
    assert inspect(lit(file, (STEP, loaders + STEP))).train_count == 8
    assert inspect(f"{file}:Lit,Points").train_count == 256
    assert place_of(f"{file}:Lit,Points") == (file, "Lit,Points")
    with pytest.raises(UsageError, match="names no workload"):
        place_of(f"{file}:Lit,Points,More")


def test_an_object_and_a_function_are_taken_too(file):
    lit(file)
    file.write_text(f"{LIT}\n\nready = Lit()\n\n\ndef make():\n    return Lit()\n", encoding="utf-8")
    for name in ("ready", "make"):
        found, *_ = trained(f"{file}:{name}")
        assert found[1] < found[0]


def test_a_file_with_a_byte_order_mark_is_a_module_too(file):
    name = lit(file)
    file.write_text("\ufeff" + file.read_text(encoding="utf-8"), encoding="utf-8")
    assert inspect(name).own.lightning


@pytest.mark.parametrize("name", ["teardown(self, stage)", "predict_dataloader(self)"])
def test_what_is_never_called_may_ask_for_the_trainer(file, name):
    method = f"    def {name}:\n        return self.trainer\n\n"
    assert inspect(lit(file, (STEP, method + STEP))).own.attribute == "Lit"


HAND = "    def __init__(self):\n        super().__init__()\n"
LOADER = "return DataLoader(self.train, batch_size=32, shuffle=True)"
SUBSET, FEW = (
    f"torch.utils.data.{kind}"
    for kind in ("SubsetRandomSampler(range(256))", "RandomSampler(self.train, num_samples=32)")
)
SAMPLER = f"return DataLoader(self.train, batch_size=32, sampler={SUBSET})"
STREAM = "return DataLoader(torch.utils.data.ChainDataset([self.train]), batch_size=32)"


def batches(sampler):
    return f"torch.utils.data.BatchSampler({sampler}, 32, False)"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            (ADAMW, f"{ADAMW}, {ADAMW[7:]}"),
            r"configure_optimizers\(\) \(training_\d+\.py, line 33\) gives 2 optimizers",
        ),
        ((ADAMW, "return None"), r"line 33\) gives a NoneType"),
        (
            ("scores = self.net", "self.trainer\n        scores = self.net"),
            r"uses self\.trainer \(training_\d+\.py, line 28\)",
        ),
        (
            ("scores = self.net", "self.manual_backward\n        scores = self.net"),
            r"28\), but it steps .* GANs .*, Several nets\)",
        ),
        (
            (HAND, f"{HAND}        self.automatic_optimization = False\n"),
            r"switches automatic optimization off, so .* one: write .* plain workload .*, Several nets\)\.",
        ),
        (
            (STEP, f"    def on_after_backward(self):\n        pass\n\n{STEP}"),
            r"on_after_backward\(\) \(training_\d+\.py, line 33.* leave it out where it only logs",
        ),
        (
            (STEP, f"    def on_train_batch_end(self, *_):\n        pass\n\n{STEP}"),
            r"line 33\), which only Lightning's Trainer calls: do its work at the beginning of training_step",
        ),
        (
            (STEP, f"    def on_before_zero_grad(self, optimizer):\n        pass\n\n{STEP}"),
            r"line 33\), which only Lightning's Trainer calls: do its work at the end of training_step\(\)",
        ),
        (
            (STEP, f"    def configure_gradient_clipping(self, optimizer):\n        pass\n\n{STEP}"),
            r"line 33\), which only Lightning's Trainer calls: give the module an attribute clip_norm",
        ),
        (
            ("scores = self.net", "self.optimizers()\n        scores = self.net"),
            r"line 28\), but .* where it only logs",
        ),
        (
            (HAND, HAND.replace("(self", "(self, width", 1)),
            r"Lit\(\) of .* wants 'width' \(.*line 2[0-9]: .*, or name a function that",
        ),
        (
            ("def setup(self", "def __init__(self, folder):\n        pass\n\n    def setup(self"),
            "Points.* wants 'folder'",
        ),
        (
            ("nn.Linear(20, 64)", "nn.LazyLinear(64)"),
            r"layers without a size.* once on a sample in __init__\(\), or say",
        ),
        ((LOADER, SAMPLER), r"train_dataloader\(\) \(.*line 14\) draws by SubsetRandomSampler"),
        ((LOADER, STREAM), r"train_dataloader\(\) \(.*line 14\) reads an IterableDataset \(ChainDataset\)"),
        ((LOADER, "return [1, 2]"), r"line 14\) gives a list: give one DataLoader"),
        ((LOADER, "return DataLoader(self.train, batch_size=None)"), "batch_sampler of its own or none"),
        (
            (LOADER, f"return DataLoader(self.train, batch_sampler={batches(SUBSET)})"),
            r"draws by SubsetRandomSampler, .* give it those alone, DataLoader\(Subset\(data, indices\), …\), in",
        ),
        ((LOADER, f"return DataLoader(self.train, sampler={FEW})"), r"draws 32 of 256 samples by its RandomSampler"),
        (
            ("scores = self.net", "self.logger.watch(self)\n        scores = self.net"),
            r"uses self\.logger .*ask for `self",
        ),
        (("    def val_dataloader", "    def other_dataloader"), r"no val_dataloader\(\) and no test_dataloader"),
        (
            ("        return loss\n", "        return None\n"),
            r"training_step\(\) \(training_\d+\.py, line 26\) gave no loss",
        ),
        (
            ('"acc": (scores', '"acc": 100 * (scores'),
            r"training_step\(\) of (\S+) \(\1, line 26.*gave [\d.]+ as accuracy: log a share from 0 to 1",
        ),
        (("scores = self.net(inputs)", "scores = self.net(labels)"), r"line 28: scores = self\.net\(labels\)"),
        (("super().__init__()\n        self.net", "raise ValueError('no net')\n        self.net"), "no net .*line 23"),
        (("(LightningDataModule)", ""), "a LightningDataModule, of which .* has none: name one behind a comma"),
    ],
)
def test_a_mistake_is_told_in_one_sentence_with_its_line(file, change, said):
    with pytest.raises((UsageError, RunError), match=said) as error:
        inspect(lit(file, change))
    assert "\n" not in str(error.value)


def test_names_that_do_not_fit_are_told(file):
    lit(file)
    for attribute, said in (("Lit,Gone", "has no 'Gone'"), ("Points", "no workload"), ("Gone,Points", "has no 'Gone'")):
        with pytest.raises(LaptimeError, match=said):
            open_own(file, attribute)
