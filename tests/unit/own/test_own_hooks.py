"""Hooks of a user's own, on an optimizer's steps, on weights and in nets: kept, or what loses them is refused."""

import pytest
from tests.own_files import PIECES, TUPLE, write

from laptime.preflight.inspecting import inspect

_SGD = "return torch.optim.SGD(parameters, lr=lr, momentum=0.9)"
_BOUNDED = """made = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
        held = list(parameters)
        {}
        return made"""
_POST = "made.register_step_post_hook(lambda *_: [p.data.clamp_(-0.1, 0.1) for p in held])"
_PRE = "made.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_(held, 0.01) and None)"
_PUT = "made.step = __import__('types').MethodType(lambda self, closure=None: type(self).step(self, closure), made)"
_COPYING = ("channels-last", "dead-taps", "products", "ema", "evaluate-on-cpu", "ddp")
_NET = "return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)"


@pytest.mark.parametrize("hook", [_POST, _PRE, _PUT])
def test_an_optimizer_whose_steps_do_more_is_not_made_anew(file, hook):
    refused = inspect(write(file, PIECES, (_SGD, _BOUNDED.format(hook)))).own.refused
    assert "one made anew with a fused kernel has neither" in refused["fused-optimizer"]
    assert refused["graph"] == refused["fp16"] == refused["fused-optimizer"]


def test_taps_that_the_hooks_of_an_optimizer_may_move_stay(file):
    wide = ("nn.Conv2d(3, 4, 3, padding=1)", "nn.Conv2d(3, 4, 17, padding=8)")
    assert "dead-taps" not in inspect(write(file, PIECES, wide)).own.refused
    hooked = file.with_name(f"hooked_{file.name}")
    refused = inspect(write(hooked, PIECES, wide, (_SGD, _BOUNDED.format(_POST)))).own.refused
    assert "what the hooks of its SGD do to weights" in refused["dead-taps"]


@pytest.mark.parametrize(
    "kind", ["register_hook(lambda g: g.clamp(-1, 1))", "register_post_accumulate_grad_hook(lambda p: None)"]
)
def test_a_net_whose_weights_have_hooks_is_not_copied(file, kind):
    made = "made = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)"
    hooked = f"        [p.{kind} for p in made.parameters()]\n        return made\n"
    text = TUPLE.replace(_NET, made).replace("nn.Linear(256, 2))\n", f"nn.Linear(256, 2))\n{hooked}")
    refused = inspect(write(file, text)).own.refused
    assert {name: refused[name] for name in _COPYING} == dict.fromkeys(
        _COPYING, "its net can't be copied (0.weight has hooks for its gradient, which copies of weights lose)"
    )


# A net that takes what a layer gives out of an attribute, where a hook has put it that knows the net by name.
_FEATURES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2))
        self.found = {}
        self.net[0].register_forward_hook(HOOK)

    def forward(self, x):
        return self.net(x) + self.found["first"].mean()
"""
_BY_NAME = "lambda _m, _i, output: self.found.update(first=output)"
# A layer whose forward was replaced by a function that knows the layer.
_REPLACED = """
def replaced():
    made = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2))
    plain = made[0].forward
    made[0].forward = lambda x: plain(x)
    return made
"""
_MADE = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"


@pytest.mark.parametrize(
    ("text", "made", "said"),
    [
        (_FEATURES.replace("HOOK", _BY_NAME), "Net()", "a copy of it fails: KeyError: 'first'"),
        (_REPLACED, "replaced()", "a copy of it takes another step"),
    ],
)
def test_a_net_whose_copy_is_another_is_not_copied(file, text, made, said):
    refused = inspect(write(file, TUPLE + text, (_MADE, made))).own.refused
    assert all(said in refused[name] for name in ("channels-last", "products", "ema", "ddp"))


def test_a_net_whose_hook_finds_its_own_copy_is_copied(file):
    kept = "\n    def keep(self, _m, _i, output):\n        self.found.update(first=output)\n"
    bound = _FEATURES.replace("HOOK", "self.keep") + kept
    assert not {"channels-last", "products"} & set(inspect(write(file, TUPLE + bound, (_MADE, "Net()"))).own.refused)


def test_a_net_that_holds_what_its_steps_gave_is_tried_on_another(file):
    kept = "        scores = model(x)\n        model.kept = [*getattr(model, 'kept', []), scores]\n"
    kept = ("        scores = model(x)\n", kept)
    wide = ("nn.Conv2d(3, 4, 3, padding=1)", "nn.Conv2d(3, 4, 17, padding=8)")
    assert not {"dead-taps", "channels-last"} & set(inspect(write(file, TUPLE, kept, wide)).own.refused)
