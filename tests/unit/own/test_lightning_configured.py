"""What a LightningModule configures: optimizers of its own, and what it asks a Trainer for while it does so."""

import pytest
from tests.unit.own.test_lightning_module import ADAMW, lit

from laptime.catalogue.own import place_of
from laptime.data.own import open_own
from laptime.errors import UsageError

_LOOKAHEAD = """\
class Lookahead(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer, self.param_groups, self.defaults = optimizer, optimizer.param_groups, optimizer.defaults


"""
_SAM = """\
class SAM(torch.optim.SGD):
    def __init__(self, params, base, **options):
        super().__init__(params, **options)


"""
_EVERY = """\
class Every(torch.optim.SGD):
    def __init__(self, params, lr=0.1, every=1):
        super().__init__(params, lr=lr)
        self.every = every


"""
_MODULE = "class Lit(LightningModule)"


@pytest.mark.parametrize(
    ("kind", "made", "said"),
    [
        (_LOOKAHEAD, "Lookahead(torch.optim.SGD(self.parameters(), lr=0.1))", r"gives Lookahead, .*fails \(Attribute"),
        (_SAM, "SAM(self.parameters(), torch.optim.SGD, lr=0.1)", r"gives SAM, .*fails \(TypeError: .*'base'\): give"),
        (_EVERY, "Every(self.parameters(), every=3)", "gives Every, .* which then has another every: give one"),
        ("", "torch.optim.SGD([torch.zeros(1)])", r"of tensors \(1\) that are no parameters of the module: make"),
    ],
)
def test_an_optimizer_that_can_t_be_made_anew_as_it_is_is_refused(file, kind, made, said):
    """Each run makes its own; an option that no group holds would silently be its default again."""
    with pytest.raises(UsageError, match=said) as told:
        open_own(*place_of(lit(file, (ADAMW, f"return {made}"), (_MODULE, kind + _MODULE))))
    assert f"configure_optimizers() ({file.name}, line " in str(told.value)
