"""A user's own optimizer, tried on the net's own parameters before a ladder; nets that few optimizers take."""

import pytest
from tests.own_files import DICTIONARY, TUPLE, own_spec, place, write
from tests.plain_loop import STEPPED, run
from tests.unit.script.script_runs import run_scripts

from laptime import worker
from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.variants import resolve

_MADE = "SGD(parameters, lr=lr, momentum=0.9)"
_BODY_AND_HEAD = 'SGD([{"params": body, "lr": lr / 10}, {"params": [w, b]}], lr=lr, momentum=0.9)'
_BEFORE = "    def loss(self"
_SCHEDULE = "    def schedule(self, optimizer, steps_per_epoch, epochs):\n        return "
_FOREIGN = "SGD([*parameters, self.centres], lr=lr)"
# A recommender's: gradients of the rows that a batch looks up.
SPARSE = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

IDS = torch.randint(0, 40, (96, 3), generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(IDS, (IDS.sum(dim=1) > 60).float())


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(40, 8, sparse=True)

    def forward(self, ids):
        return self.items(ids).sum(dim=1)


class Workload:
    batch_size = 16

    def data(self):
        return torch.utils.data.Subset(DATA, range(64)), torch.utils.data.Subset(DATA, range(64, 96))

    def model(self):
        return Bag()

    def loss(self, model, batch):
        return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1])

    def optimizer(self, parameters, lr):
        return torch.optim.SparseAdam(parameters, lr=lr)
"""
# A filter of complex weights over spectra, none of which the fused kernels take.
_COMPLEX = """
class Spectral(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self.gain = nn.Parameter(torch.ones(8, 5, dtype=torch.complex64))

    def forward(self, x):
        return super().forward(torch.fft.irfft2(torch.fft.rfft2(x) * self.gain))


class Workload:
"""
_CALLED = "return nn.Sequential("


def ran(name: str, folder) -> object:
    data = inspect(name)
    return data.own.refused, worker.run(own_spec(data, "cpu-optimized"), folder / "run")


def test_groups_of_the_nets_own_parameters_may_begin_with_another_rate(file):
    parts = (f"return torch.optim.{_MADE}", f"*body, w, b = parameters\n        return torch.optim.{_BODY_AND_HEAD}")
    assert "fused-optimizer" not in inspect(write(file, DICTIONARY, parts)).own.refused


def test_what_is_not_the_nets_is_not_trained_by_its_optimizer(file):
    """It would begin where the warm-up left it, and no checkpoint would hold it."""
    kept = ("    def model(self)", "    centres = nn.Parameter(torch.zeros(2))\n\n    def model(self)")
    with pytest.raises(
        UsageError, match=r"trains 1 tensors that are not among its parameters \(.*net of model\(\)"
    ) as told:
        inspect(write(file, DICTIONARY, kept, (_MADE, _FOREIGN)))
    assert place(file, "def optimizer") in str(told.value)


def test_a_rate_that_happens_to_be_that_of_the_workload_is_not_passed_on(file):
    with pytest.raises(UsageError, match=r"trains at 0\.001 where it was given lr=0\.002"):
        inspect(write(file, DICTIONARY, ("lr=lr", "lr=1e-3")))


@pytest.mark.parametrize(
    ("function", "given", "told"),
    [
        ("optimizer", "LBFGS(parameters, lr=lr)", "LBFGS, whose step.. wants 'closure'.*such as SGD or Adam"),
        (
            "schedule",
            "torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)",
            "whose step.. wants 'metrics'.*OneCycleLR",
        ),
        ("schedule", "None", "NoneType, which has no step..: return the schedule itself"),
        ("schedule", "{'scheduler': optimizer}", "dict, which has no step"),
    ],
)
def test_what_has_no_step_to_take_after_a_batch_is_refused(file, function, given, told):
    """torch would end with its own words after the first batch, or a schedule be stepped with no metric to look at."""
    change = (_MADE, given) if function == "optimizer" else (_BEFORE, _SCHEDULE + given + "\n\n" + _BEFORE)
    with pytest.raises(UsageError, match=told) as error:
        inspect(write(file, DICTIONARY, change))
    assert place(file, f"def {function}") in str(error.value)


@pytest.mark.parametrize("own", ["foreach=True", "foreach=False"])
def test_kernels_that_a_user_has_chosen_give_way_to_the_fused_one(file, tmp_path, own):
    name = write(file, DICTIONARY, (_MADE, f"AdamW(parameters, lr=lr, {own})"))
    refused, record = ran(name, tmp_path)
    assert "fused-optimizer" not in refused
    assert (record.status, record.error) == ("done", None)


def test_sparse_gradients_are_compared_with_the_baselines(file, tmp_path):
    refused, record = ran(write(file, SPARSE), tmp_path)
    assert "sparse gradients" in refused["flat-reduce"]
    assert "ddp" not in refused
    assert (record.status, record.error) == ("done", None)
    assert record.check.passed
    assert record.check.gradient_error < 0.1


def test_complex_weights_are_trained_without_the_fused_kernel(file, tmp_path):
    name = write(file, TUPLE.replace("\nclass Workload:\n", _COMPLEX, 1), (_CALLED, "return Spectral("))
    refused, record = ran(name, tmp_path)
    assert "Adam has no fused kernel for it" in refused["fused-optimizer"]
    assert (record.status, record.check.passed) == ("done", True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is (deprecated|not supported in Python)")
@pytest.mark.parametrize(
    "changes",
    [
        [("nn.Flatten(),", "torch.jit.script(nn.Flatten()),")],
        [(_CALLED, "return torch.jit.script(nn.Sequential("), ("nn.Linear(256, 2))", "nn.Linear(256, 2)))")],
    ],
)
def test_modules_of_torch_jit_train_as_they_are(file, tmp_path, changes):
    refused, record = ran(write(file, TUPLE, *changes), tmp_path)
    assert {"channels-last", "dead-taps", "products", "ema"} <= refused.keys()
    assert (record.status, record.check.passed) == ("done", True)


@pytest.mark.parametrize(
    ("base", "step", "refused"),
    [
        ("", "(self, closure=None):\n        self.inner.step(closure)", {"onecycle", "linear-decay", "large-batch"}),
        ("", "(self):\n        self.inner.step()", {"onecycle", "linear-decay", "large-batch", "lightning"}),
        ("torch.optim.Optimizer", "(self, closure=None):\n        self.inner.step()", {"lightning"}),
    ],
)
def test_what_wraps_an_optimizer_is_left_out_of_what_can_t_take_it(file, base, step, refused):
    kind = (
        f"class Ahead({base}):\n    def __init__(self, inner):\n        self.inner, self.state = inner, inner.state\n"
        "        self.param_groups, self.defaults = inner.param_groups, inner.defaults\n"
        f"        self.zero_grad = inner.zero_grad\n\n    def step{step}\n\n\n"
    )
    made = (f"return torch.optim.{_MADE}", f"return Ahead(torch.optim.{_MADE})")
    found = inspect(write(file, DICTIONARY, ("class Workload", f"{kind}class Workload"), made)).own.refused
    assert refused == {"onecycle", "linear-decay", "large-batch", "lightning"} & found.keys()
    assert all("its Ahead" in found[name] or "no Ahead" in found[name] for name in refused)


def test_gradients_that_a_step_changes_are_not_compared_behind_it(file):
    kind = (
        "class Scaled(torch.optim.SGD):\n    def step(self, closure=None):\n        loss = closure and closure()\n"
        "        for group in self.param_groups:\n            for p in group['params']:\n"
        "                p.grad.mul_(0.5)\n        super().step()\n        return loss\n\n\n"
    )
    made = (f"return torch.optim.{_MADE}", "return Scaled(parameters, lr=lr)")
    assert "lightning" not in inspect(write(file, DICTIONARY)).own.refused
    other = file.with_name(f"scaled_{file.name}")
    refused = inspect(write(other, DICTIONARY, ("class Workload", f"{kind}class Workload"), made)).own.refused
    assert refused["lightning"] == "the step of its Scaled changes gradients, which are compared behind it"


def test_a_fused_kernel_is_not_for_an_optimizer_with_options_that_no_group_holds(file):
    """It would be made anew with their defaults, and be another one."""
    kind = (
        "class Every(torch.optim.SGD):\n    def __init__(self, params, lr, momentum=0.0, every=1, fused=None):\n"
        "        super().__init__(params, lr=lr, momentum=momentum, fused=fused)\n        self.every = every\n\n\n"
    )
    made = (f"torch.optim.{_MADE}", "Every(parameters, lr, every=3)")
    found = inspect(write(file, DICTIONARY, ("class Workload", f"{kind}class Workload"), made)).own.refused
    assert found["fused-optimizer"] == "its Every, made anew with a fused kernel, has another every"


_LOADED = """made = torch.optim.AdamW(parameters, lr=lr)
        moments = {n: dict(step=torch.tensor(9.0), exp_avg=p.detach().abs().clone(), exp_avg_sq=p.detach().square() + 1)
                   for n, p in enumerate(parameters)}
        made.load_state_dict({**made.state_dict(), "state": moments})
        return made"""


def test_moments_that_are_loaded_begin_every_variant(file, tmp_path):
    """As a training goes on from a checkpoint: one that is made anew with a fused kernel had forgotten them, and what
    cuts or lays out weights anew would pair them with others.
    """
    name = write(file, TUPLE, (_BEFORE, f"    def optimizer(self, parameters, lr):\n        {_LOADED}\n\n{_BEFORE}"))
    data = inspect(name)
    for left_out in ("channels-last", "dead-taps", "graph"):
        assert "moments that were loaded" in data.own.refused[left_out]
    assert "fused-optimizer" not in data.own.refused
    found = [
        worker.run(own_spec(data, variant, warmup_epochs=1), tmp_path / str(number))
        for number, variant in enumerate(("cpu-baseline", "cpu-baseline+fused-optimizer"))
    ]
    assert found[1].epochs[0].train_loss == pytest.approx(found[0].epochs[0].train_loss, rel=1e-5)


@pytest.mark.parametrize("made", ["RMSprop(parameters, lr=lr)", "RMSprop(parameters, lr=lr, momentum=0.9)"])
def test_an_optimizer_without_a_fused_kernel_begins_without_moments(file, made):
    own = f"    def optimizer(self, parameters, lr):\n        return torch.optim.{made}\n\n{_BEFORE}"
    refused = inspect(write(file, TUPLE, (_BEFORE, own))).own.refused
    assert refused["fused-optimizer"] == "RMSprop has no fused kernel"
    assert not any("moments" in reason for reason in refused.values())
    assert not {"channels-last", "graph"} & set(refused)


# Blocks that are left out by chance, so that some weights get their first gradient later than others.
_CLASS = "\nclass Workload:"
_DEPTH = """
class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(192, 192) for _ in range(4))
        self.head = nn.Linear(192, 2)

    def forward(self, x):
        x = x.flatten(1)
        for block in self.blocks:
            if torch.rand(()) < 0.4:
                x = x + torch.relu(block(x))
        return self.head(x)


class Workload:"""


@pytest.mark.parametrize("dampening", [0.0, 0.1])
def test_fused_sgd_takes_weights_whose_first_gradient_comes_late(file, tmp_path, dampening):
    """Dampened, momenta of zeros would be others, and torch's own words stay."""
    own = STEPPED.replace("momentum=0.9", f"momentum=0.9, dampening={dampening}") + "self, model, batch)"
    net = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"
    rate = ("    batch_size = 16\n", "    batch_size = 16\n    learning_rate = 0.1\n")
    data = inspect(
        write(file, TUPLE, (_CLASS, _DEPTH), (net, "Depth()"), ("    def loss(self, model, batch)", own), rate)
    )
    plain, done = (
        run(own_spec(data, f"cpu-baseline{more}", learning_rate=0.1, epochs=2, check=False), tmp_path / f"run{more}")
        for more in ("", "+fused-optimizer")
    )
    truth = [e.train_loss for e in plain.epochs]
    if dampening:
        assert "expected Tensor as element" in done.error
        return
    assert [e.train_loss for e in done.epochs] == pytest.approx(truth, rel=1e-5)
    text = print_script(resolve("cpu-baseline+fused-optimizer"), "own", data)
    (printed,) = run_scripts(tmp_path, {"fused": (text, [])}).values()
    assert [loss for loss, *_ in printed] == pytest.approx(truth, rel=1e-5)
