"""How a LightningModule is read: what it logs, its modes, its loaders, and what it inherits from another file."""

import sys

import pytest
from tests.unit.own.test_lightning_module import LIT, LOADER, STEP, opened

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.errors import UsageError

LOGGED = 'self.log_dict({"loss": loss, "acc": (scores.argmax(dim=1) == labels).float().mean()})'
NET = "        self.net = nn.Sequential("


def answer(file, *changes, training=True):
    data = opened(file, *changes)
    net = data.workload.model().train(training)
    return data.workload.loss(net, data.train.batch(range(8)))


@pytest.mark.parametrize(
    ("logged", "found"),
    [
        ("{'acc_top5': loss * 0 + 1, 'acc': loss * 0 + 0.5}", 0.5),
        ("{'trainAcc1': loss * 0 + 0.25}", 0.25),
        ("{'MulticlassAccuracy': loss * 0 + 0.75}", 0.75),
        ("{'acceleration': loss * 0 + 7}", None),
        ("{'accumulated': loss * 0 + 7}", None),
    ],
)
def test_an_accuracy_is_known_by_the_words_of_its_name(file, logged, found):
    _, accuracy = answer(file, (LOGGED, f"self.log_dict({logged})"))
    assert (None if accuracy is None else float(accuracy)) == found


@pytest.mark.parametrize(
    "said",
    [
        'return {"val_kl_loss": torch.tensor(1.0), "val_loss": torch.tensor(7.0)}',
        'self.log_dict({"val_kl_loss": torch.tensor(1.0), "val_loss": torch.tensor(7.0)})',
    ],
)
def test_the_loss_of_the_test_is_the_whole_one_wherever_it_is_said(file, said):
    step = f"    def validation_step(self, batch, batch_idx):\n        {said}\n\n"
    assert float(answer(file, (STEP, step + STEP), training=False)[0]) == 7.0


def test_what_the_module_put_into_evaluation_mode_stays_in_it(file):
    frozen = "        self.norm = nn.Sequential(nn.BatchNorm1d(20), nn.Dropout()).eval()\n"
    net = opened(file, (NET, frozen + NET)).workload.model()
    for again in (net.train(), net.eval().train()):
        assert [again.module.norm.training, again.module.norm[1].training] == [False, False]
        assert again.module.net.training


@pytest.mark.parametrize("sampler", ["RandomSampler", "SequentialSampler"])
def test_a_batch_sampler_of_torchs_says_how_large_batches_are(file, sampler):
    batches = f"torch.utils.data.BatchSampler(torch.utils.data.{sampler}(self.train), 24, True)"
    data = opened(file, (LOADER, f"return DataLoader(self.train, batch_sampler={batches})"))
    assert data.workload.batch_size == 24
    said = " ".join(data.notes)
    assert ("does not shuffle" in said, "which drop_last leaves out" in said) == (sampler == "SequentialSampler", True)


@pytest.mark.parametrize("given", ["loss.reshape(1)", "UserDict(loss=loss)", "{'loss': loss[None, None]}"])
def test_a_loss_may_be_given_as_lightnings_trainer_takes_it(file, given):
    imports = ("import torch\n", "import torch\nfrom collections import UserDict\n")
    loss, _ = answer(file, ("return loss\n", f"return {given}\n"), imports)
    assert (loss.shape, loss.requires_grad) == ((), True)


def test_callbacks_of_the_modules_own_are_noted(file):
    method = "    def configure_callbacks(self):\n        return []\n\n"
    notes = opened(file, (STEP, method + STEP)).notes
    assert notes == (f"not called: configure_callbacks ({file.name}, line 33) of Lit",)


def test_a_step_may_take_more_by_name(file):
    assert answer(file, ("(self, batch, batch_idx)", "(self, batch, **more)"))[0].requires_grad


@pytest.mark.parametrize("nested", [False, True])
def test_what_a_base_class_asks_of_the_trainer_is_refused_wherever_it_stands(file, nested):
    base = file.with_name(f"base_of_{file.name}")
    step = "def training_step(self, batch, batch_idx):"
    text = LIT.replace(step, f"{step}\n        self.trainer")
    here = "\n".join(f"    {line}" for line in text.splitlines()) if nested else text
    base.write_text(f"if True:\n{here}" if nested else here, encoding="utf-8")
    file.write_text(f"from {base.stem} import Lit as Base, Points\n\n\nclass Lit(Base):\n    pass\n", encoding="utf-8")
    with pytest.raises(UsageError, match=rf"Lit uses self\.trainer \({base.name}, line 2\d\)"):
        open_own(*place_of(f"{file}:Lit,Points"))
    replaced = f"class Lit(Base):\n    {step}\n        return self.net(batch[0]).mean()\n"
    file.write_text(
        file.read_text(encoding="utf-8").replace("class Lit(Base):\n    pass\n", replaced), encoding="utf-8"
    )
    sys.modules.pop(file.stem, None)
    assert len(open_own(*place_of(f"{file}:Lit,Points")).train) == 256
    sys.modules.pop(base.stem)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("module = self\n        module.trainer", True),
        ("me = mine = self\n        [me.trainer for _ in batch]", True),
        ("module = self.net\n        module.global_step = 1", False),
    ],
)
def test_a_module_by_another_name_is_the_module(file, said, wrong):
    changes = ("self.log_dict", f"{said}\n        self.log_dict")
    if wrong:
        with pytest.raises(UsageError, match=r"Lit uses self\.trainer \("):
            answer(file, changes)
    else:
        assert answer(file, changes)[0].requires_grad


@pytest.mark.parametrize(
    ("caller", "said"),
    [
        ("on_train_epoch_end(self)", ""),
        ("teardown(self, stage)", ""),
        ("export(self)", ""),  # which nothing calls
        ("setup(self, stage)", r"Lit uses self\.logger \("),
        ("train(self, mode=True)", r"Lit uses self\.logger \("),
        ("validation_step(self, batch, batch_idx)", r"Lit uses self\.logger \("),
    ],
)
def test_what_only_hooks_call_may_ask_for_the_trainer(file, caller, said):
    shown = "    def shown(self):\n        self.logger.experiment.add_scalar('a', self.trainer.callback_metrics)\n\n"
    changes = (STEP, f"    def {caller}:\n        self.shown()\n\n{shown}{STEP}")
    if not said:
        assert answer(file, changes)[0].requires_grad
        return
    with pytest.raises(UsageError, match=said):
        answer(file, changes)


@pytest.mark.parametrize(
    "asked", ["if self.logger:\n            self.logger.watch(self)", "self.logger and self.logger.watch(self)"]
)
def test_a_logger_may_be_asked_for_first(file, asked):
    assert answer(file, ("self.log_dict", f"{asked}\n        self.log_dict"))[0].requires_grad
