"""A loss that differentiates gradients: no compiler has a graph for those of the net."""

import pytest
import torch
from tests.own_files import TUPLE, write

from laptime.preflight.inspecting import inspect

PENALTY = """scores = model(x)
        with torch.enable_grad():
            OF
            slope, = torch.autograd.grad(OUT, x, create_graph=GRAPH)
        scores = scores + slope.square().mean()"""


def compiled(file, of: str, out: str, graph: bool = True) -> str | None:
    change = PENALTY.replace("OF", of).replace("OUT", out).replace("GRAPH", str(graph))
    inputs = ("x, y = batch", "x, y = batch\n        x = x.clone().requires_grad_()")
    refused = inspect(write(file, TUPLE, ("scores = model(x)", change), inputs)).own.refused
    assert refused.get("compile") == refused.get("compile-graphed")
    return refused.get("compile")


def test_a_penalty_on_gradients_of_what_the_net_gives_leaves_compile_out(file):
    assert "create_graph=True" in compiled(file, "found = model(x)", "found.sum()")


@pytest.mark.parametrize(
    ("of", "out", "graph"),
    [
        ("found = model(x)", "found.sum()", False),  # the worst inputs, say
        (
            "found = model[4](model[3](model[0](x)))",
            "found.sum()",
            True,
        ),  # parts that are called alone are compiled by none
        ("found = x.square()", "found.sum()", True),
    ],
)
def test_other_gradients_leave_it_in(file, of, out, graph):
    assert compiled(file, of, out, graph) is None


def test_the_compiler_has_no_graph_for_them_indeed():
    net, x = torch.compile(torch.nn.Linear(3, 1), backend="aot_eager"), torch.ones(2, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        slope.square().mean().backward()
