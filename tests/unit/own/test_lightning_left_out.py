"""What a LightningModule leaves to Lightning's Trainer and laptime leaves out is told with its lines."""

import pytest
from tests.unit.own.test_lightning_module import LIT, STEP, lit

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.preflight.inspecting import inspect

_LOSS = "loss = F.cross_entropy(scores, labels)"
_WARMED = (_LOSS, f"{_LOSS} * self.warmth")
_MADE = ("super().__init__()\n", "super().__init__()\n        self.warmth, self.seen = 1.0, []\n")
_RATES = "for group in self.trainer.optimizers[0].param_groups"
_PAIRS = "for p, q in zip(self.net[0].parameters(), self.net[2].parameters())"


def hooked(file, body, *changes, hook="on_train_epoch_start"):
    method = f"    def {hook}(self):\n        {body}\n\n"
    helped = "    def set_up(self):\n        self.warmth = 2.0\n\n"
    return lit(file, _WARMED, _MADE, (STEP, method + helped + STEP), *changes)


@pytest.mark.parametrize(
    ("hook", "body", "changes"),
    [
        ("on_train_epoch_start", "self.warmth = 0.5", "warmth"),
        ("on_train_epoch_end", "self.warmth *= 0.5", "warmth"),
        ("on_validation_epoch_end", "self.warmth, rest = 1, 2", "warmth"),
        ("on_fit_start", "self.set_up()", "warmth"),
        ("on_train_start", "for p in self.net[0].parameters():\n            p.requires_grad = False", "requires_grad"),
        ("on_fit_start", "self.net[0].requires_grad_(False)", "self.net[0].requires_grad_()"),
        ("on_train_epoch_start", "self.net.eval()", "self.net.eval()"),
        ("on_train_epoch_start", "self.net[0].weight.data.mul_(0.9)", "self.net[0].weight.data.mul_()"),
        ("on_train_start", "torch.nn.init.zeros_(self.net[2].weight)", "torch.nn.init.zeros_()"),
        ("on_fit_start", "self.apply(print)", "self.apply()"),
        ("on_train_epoch_start", f"{_RATES}:\n            group['lr'] *= 0.5", "group['lr']"),
        ("on_train_epoch_start", "for part in self.modules():\n            part.p = 0.5", "part.p"),
        (
            "on_train_epoch_end",
            f"{_PAIRS}:\n            q.data.mul_(0.9).add_(p)",
            "q.data.mul_(0.9).add_(), q.data.mul_()",
        ),
        ("on_train_epoch_end", "rates = self.lr_schedulers()\n        rates.step()", "rates.step()"),
        ("on_train_epoch_start", "setattr(self.net[0], 'scale', 0.5)", "setattr()"),
        ("on_train_epoch_end", "self.shown.zero_()", ""),  # which no step reads
        ("on_train_epoch_end", "trainer = self.trainer\n        trainer.should_stop = True", ""),
        ("on_train_epoch_end", "figure = plot(self.shown)\n        figure.title, figure.x['lr'] = 'a', 2", ""),
        ("on_train_epoch_end", "self.profiler.step()", ""),
        ("on_train_epoch_start", "self.optimizers().train()", ""),  # which laptime does itself
        ("on_validation_epoch_start", "made = self.trainer.optimizers[0]\n        made.eval()", ""),
        ("on_train_epoch_start", "made, net = self.optimizers(), self.net\n        net.train()", "net.train()"),
        ("on_train_epoch_start", "self.epoch_begun = 1", ""),  # which no step reads
        ("on_train_epoch_end", "self.log('warmth', self.warmth)", ""),
        ("on_save_checkpoint", "self.warmth = 0.5", ""),
    ],
)
def test_a_hook_that_changes_the_training_is_told_before_it(file, hook, body, changes):
    name = hooked(file, body, hook=hook)
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if f"def {hook}" in text)
    assert f"not called: {hook} ({file.name}, line {line}) of Lit" in open_own(*place_of(name)).notes
    told = f"training goes on without what they change, {hook}() ({file.name}, line {line}) with {changes}: do it in"
    notice = inspect(name).notice
    assert told in notice if changes else notice == ""


@pytest.mark.parametrize("emptied", ["self.seen.clear()", "self.seen = []"])
def test_a_list_that_only_a_hook_empties_is_noted(file, emptied):
    name = hooked(
        file, emptied, (_WARMED[1], f"{_WARMED[1]}\n        self.seen.append(loss)"), hook="on_train_epoch_end"
    )
    assert open_own(*place_of(name)).notes[1] == "what such hooks would empty grows with each step: seen"
    assert inspect(name).notice == ""


@pytest.mark.parametrize(
    ("call", "noted"),
    [
        ("Trainer(max_epochs=3, gradient_clip_val=1.0)", "gradient_clip_val=1.0 of the Trainer"),
        ("L.Trainer(accumulate_grad_batches=args.many)", "accumulate_grad_batches=args.many of the Trainer"),
        ("LightningCLI(Lit, trainer_defaults={'precision': '16-mixed'})", "precision='16-mixed' of the Trainer"),
        ("Trainer(gradient_clip_val=None, accumulate_grad_batches=1, precision='32-true', devices=2)", ""),
        ("Sampler(gradient_clip_val=1.0)", ""),
        ("Trainer(**{'max_epochs': 3, 'gradient_clip_val': 1.0})", "gradient_clip_val=1.0 of the Trainer"),
        ("some = dict(max_epochs=3, gradient_clip_val=0.5); Trainer(**some)", "gradient_clip_val=0.5 of the Trainer"),
        ("trainer.fit(Lit(), ckpt_path='last.ckpt')", "ckpt_path='last.ckpt' of the Trainer"),
        ("trainer.fit(Lit(), ckpt_path=None)", ""),
        ("trainer.validate(Lit(), ckpt_path='best')", ""),
        ("Trainer(callbacks=[ModelCheckpoint(), LearningRateMonitor('step'), RichProgressBar(), watching])", ""),
    ],
)
def test_what_the_files_trainer_is_given_and_nobody_sees_is_noted(file, call, noted):
    lit(file)
    file.write_text(f"{LIT}\n\ndef main(args):\n    {call}.fit(Lit(), Points())\n", encoding="utf-8")
    notes = open_own(*place_of(f"{file}:Lit")).notes
    line = len(file.read_text().splitlines())
    assert [f"{noted} ({file.name}, line {line}) is not seen" in note for note in notes] == [True] * bool(noted)


def test_a_callback_that_may_change_steps_is_noted(file):
    lit(file)
    made = "Trainer(callbacks=[EarlyStopping('val_loss'), callbacks.StochasticWeightAveraging(1e-2), Follow(0.9)])"
    file.write_text(f"{LIT}\n\ndef main():\n    {made}.fit(Lit())\n", encoding="utf-8")
    place = f"({file.name}, line {len(file.read_text().splitlines())}) is not run: where it changes the training, do"
    first, second = open_own(*place_of(f"{file}:Lit")).notes
    assert first.startswith(f"the callback callbacks.StochasticWeightAveraging(0.01) {place}")
    assert second.startswith(f"the callback Follow(0.9) {place}")


@pytest.mark.parametrize(
    "said",
    [
        "swa = Follow(0.9)\n    Trainer(callbacks=[swa])",
        "many = [EarlyStopping('loss')]\n    many.append(Follow(0.9))\n    Trainer(**{'callbacks': many})",
        "many = [Follow(0.9)]\n    Trainer(callbacks=many + [ModelCheckpoint()])",
        "many = []\n    many += [Follow(0.9)]\n    Trainer(callbacks=many)",
    ],
)
def test_callbacks_are_followed_through_names(file, said):
    lit(file)
    file.write_text(f"{LIT}\n\ndef main():\n    {said}\n", encoding="utf-8")
    (note,) = open_own(*place_of(f"{file}:Lit")).notes
    assert note.startswith(f"the callback Follow(0.9) ({file.name}, line ")


def test_a_callback_of_the_modules_own_that_may_change_steps_is_noted(file):
    method = "    def configure_callbacks(self):\n        return [EarlyStopping('loss'), Follow(0.9)]\n\n"
    notes = open_own(*place_of(lit(file, (STEP, method + STEP)))).notes
    assert notes[1].startswith(f"the callback Follow(0.9) ({file.name}, line 34) is not run: where it changes the")


def test_a_bound_that_the_module_has_itself_is_no_matter(file):
    lit(file, ("class Lit(LightningModule):\n", "class Lit(LightningModule):\n    clip_norm = 1.0\n\n"))
    file.write_text(f"{file.read_text()}\n\ndef main():\n    Trainer(gradient_clip_val=1.0)\n", encoding="utf-8")
    assert open_own(*place_of(f"{file}:Lit")).notes == ()


@pytest.mark.parametrize(("most", "noted"), [("8", False), ("32", True), ("None", True)])
def test_batches_that_the_module_accumulates_itself_are_no_matter(file, most, noted):
    lit(file, ("class Lit(LightningModule):\n", f"class Lit(LightningModule):\n    micro_batch_size = {most}\n\n"))
    file.write_text(f"{file.read_text()}\n\ndef main():\n    Trainer(accumulate_grad_batches=4)\n", encoding="utf-8")
    remedy = "give the loader as many times the batch_size, and the module what the loader has now as micro_batch_size"
    notes = open_own(*place_of(f"{file}:Lit")).notes
    assert [note.endswith(f"is not seen: {remedy}") for note in notes] == [True] * noted


_FROM = """
data = LightningDataModule.from_datasets(TensorDataset(torch.ones(40, 20), torch.ones(40).long()),
                                         TensorDataset(torch.ones(8, 20), torch.ones(8).long()), batch_size=10)
"""


@pytest.mark.parametrize("named", ["", ",data"])
def test_data_of_lightnings_own_class_are_an_object_of_the_file(file, named):
    text = LIT.replace("class Points(LightningDataModule)", "class Points") if not named else LIT
    file.write_text(f"{text}{_FROM}", encoding="utf-8")
    data = open_own(*place_of(f"{file}:Lit{named}"))
    assert (len(data.train), len(data.test), data.batch_size) == (40, 8, 10)
