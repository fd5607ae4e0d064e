"""The one-step check of steps that draw: noise, time steps, an order of samples."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.engine.build import open_data
from laptime.engine.check import check_one_step
from laptime.engine.same_draws import Draws, Part
from laptime.engine.still import still
from laptime.preflight.inspecting import inspect

_IMPORTED, _ORDER = torch.randn_like, torch.randperm
_D = torch.distributions

# Of images [n, 3, 4, 4] and probabilities [n, 4], something for each sample.
WAYS = {
    "like": lambda x, p: torch.randn_like(x),
    "imported": lambda x, p: _IMPORTED(x),
    "like in another type": lambda x, p: torch.rand_like(x, dtype=torch.float64),
    "integers like": lambda x, p: torch.randint_like(x, 10),
    "sizes": lambda x, p: torch.rand(len(x), 3),
    "a tuple": lambda x, p: torch.randn((len(x), 2)),
    "by name": lambda x, p: torch.randn(size=(len(x), 2), dtype=torch.float64),
    "time steps": lambda x, p: torch.randint(0, 1000, (len(x),)),
    "time steps by name": lambda x, p: torch.randint(high=1000, size=(len(x),)),
    "behind another axis": lambda x, p: torch.randn(6, len(x), 2).transpose(0, 1),
    "several a sample": lambda x, p: torch.rand(len(x) * 3, 2).view(len(x), 3, 2),
    "probabilities": lambda x, p: torch.bernoulli(p),
    "probabilities' method": lambda x, p: p.bernoulli(),
    "classes": lambda x, p: torch.multinomial(p, 2),
    "means and widths": lambda x, p: torch.normal(p, p),
    "means": lambda x, p: torch.normal(p, 1.0),
    "a mean and a size": lambda x, p: torch.normal(0.0, 1.0, (len(x), 2)),
    "in place": lambda x, p: torch.empty_like(x).uniform_(),
    "in place by probability": lambda x, p: x.new_empty(len(x), 3).bernoulli_(0.5),
    "in place by probabilities": lambda x, p: torch.empty_like(p).bernoulli_(p),
    "gumbel": lambda x, p: F.gumbel_softmax(p),
    "categorical": lambda x, p: _D.Categorical(p).sample(),
    "reparametrized": lambda x, p: _D.Normal(p, p).rsample(),
    "exponential": lambda x, p: _D.Exponential(p).rsample(),
    "of weights": lambda x, p: torch.randn(5, 4).expand(len(x), 5, 4),
    "one for all": lambda x, p: torch.rand(()).expand(len(x)),
}


def _drawn(way, images, chances, draws=None):
    torch.manual_seed(0)
    with still(draws or Draws()):
        return way(images, chances)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_each_of_unequal_ranks_draws_the_values_of_its_samples(way):
    images, chances = torch.randn(7, 3, 4, 4), torch.rand(7, 4) * 0.8 + 0.1
    told: set = set()
    whole = _drawn(way, images, chances, Draws(part=Part((4, 3)), told=told))
    for rank, mine in enumerate((slice(0, 4), slice(4, 7))):
        part = images[mine].to(memory_format=torch.channels_last)
        found = _drawn(way, part, chances[mine], Draws(frozenset(told), Part((4, 3), rank)))
        assert torch.equal(found, whole[mine])


def _imported(x, p):
    return _ORDER(len(x))


def _by_name(x, p):
    return torch.randperm(len(x))


@pytest.mark.parametrize("order", [_imported, _by_name])
def test_each_rank_shuffles_its_samples_as_one_process_does(order):
    told: set = set()
    whole = _drawn(order, torch.ones(7), None, Draws(part=Part((4, 3)), told=told))
    assert whole[:4].sort().values.tolist() == [0, 1, 2, 3]
    assert whole[4:].sort().values.tolist() == [4, 5, 6]
    for rank, (count, first) in enumerate(((4, 0), (3, 4))):
        draws = Draws(frozenset(told), Part((4, 3), rank))
        found = _drawn(order, torch.ones(count), None, draws)
        assert torch.equal(found, whole[first : first + count] - first)


def test_values_fall_by_axes_and_not_by_memory():
    images = torch.randn(4, 3, 8, 8)
    laid = images.to(memory_format=torch.channels_last)
    for way in (torch.randn_like, lambda x: torch.empty_like(x).normal_(), lambda x: torch.bernoulli(x.sigmoid())):
        torch.manual_seed(0)
        free, again = way(images), way(images)
        assert not torch.equal(free, again)
        found = [_drawn(lambda x, p, way=way: way(x), like, None) for like in (images, laid)]
        assert torch.equal(*found)
        assert found[1].is_contiguous(memory_format=torch.channels_last)


# In a tensor's type, and the bound that none may reach; 4096 values, so that some would be rounded up to it.
IN_ITS_TYPE = {
    "like": (torch.randn_like, None),
    "like another": (lambda x: torch.randn_like(x.double(), dtype=x.dtype), None),
    "sizes": (lambda x: torch.randn(64, 64, dtype=x.dtype), None),
    "means and widths": (lambda x: torch.normal(x.new_zeros(64, 64), x.new_ones(64, 64)), None),
    "reparametrized": (lambda x: _D.Normal(x.new_zeros(64, 64), x.new_ones(64, 64)).rsample(), None),
    "in place": (lambda x: torch.empty_like(x).normal_(0.5, 2.0), None),
    "uniform like": (torch.rand_like, 1.0),
    "uniform by name": (lambda x: torch.rand(size=(64, 64), dtype=x.dtype), 1.0),
    "uniform in place": (lambda x: torch.empty_like(x).uniform_(), 1.0),
    "uniform up to a bound": (lambda x: torch.empty_like(x).uniform_(-3.0, 3.0), 3.0),
    "uniform up to a named bound": (lambda x: x.new_empty(64, 64).uniform_(to=0.25), 0.25),
}


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("way", "bound"), IN_ITS_TYPE.values(), ids=IN_ITS_TYPE.keys())
def test_short_numbers_are_those_of_fp32_rounded(way, bound, kind):
    images = torch.randn(16, 4, 8, 8)
    for of in (images, images.to(memory_format=torch.channels_last)):
        wide, short = (_drawn(lambda x, p: way(x), of.to(each), None) for each in (torch.float32, kind))
        assert short.dtype == kind
        assert torch.allclose(short.float(), wide, rtol=torch.finfo(kind).eps, atol=1e-7)
        assert bound is None or short.amax() < bound


def test_short_noise_that_wants_a_gradient_has_one_of_its_own():
    images = torch.ones(4, 8, dtype=torch.bfloat16)
    with still():
        noise = torch.randn_like(images, requires_grad=True)
        (noise * 2).sum().backward()
    assert noise.grad.eq(2).all()


def test_behind_it_torch_draws_as_before():
    before = torch.randn_like, torch.Tensor.normal_, torch.randperm
    with still():
        assert torch.randn_like is not before[0]
    assert (torch.randn_like, torch.Tensor.normal_, torch.randperm) == before
    assert "normal_" not in vars(torch.Tensor)


NOISY = ("nn.Flatten(),", "nn.Flatten(), Noise(),")
NOISE = """
class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Workload:
"""


@pytest.mark.parametrize("rungs", ["compile", "channels-last+bf16"])
def test_a_net_that_draws_noise_is_not_called_wrong(file, rungs):
    """Inductor's kernels would draw numbers of their own."""
    data = inspect(write(file, TUPLE, ("\nclass Workload:\n", NOISE), NOISY))
    spec = own_spec(data, f"cpu-baseline+{rungs}")
    found = check_one_step(spec, open_data(spec), 16)
    assert found.passed, found
    if rungs == "compile":
        assert found.loss_error < 1e-5
