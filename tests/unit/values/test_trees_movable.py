"""Objects of users' own classes in batches, which their own `to(device)` moves."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from laptime.values.trees import by_sample, cut, leaves, mapped, movable, samples, sent, tensors, undivided

META, PLAIN, LAST = torch.device("meta"), torch.contiguous_format, torch.channels_last


class Moved:
    """Moves itself in place, what no attribute holds as well; holds itself."""

    def __init__(self, x, **more):
        self.x, self.parts, self.hidden = x, {"own": self, "y": [x + 1]}, {"z": lambda: x}
        self.at = torch.device("cpu")
        vars(self).update(more)

    def to(self, device):
        self.x, self.at = self.x.to(device), device


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x

    def to(self, device):
        return Slotted(self.x.to(device))


def test_its_own_method_moves_a_copy_wherever_it_stands():
    given = Moved(torch.zeros(3, 2))
    slotted = Slotted(torch.zeros(2))
    found = sent((given, {"some": [slotted], "text": "a"}, torch.zeros(1)), META, PLAIN)
    assert (found[0].at, given.at.type) == (META, "cpu")
    assert found[0].x.is_meta
    assert found[0].parts["y"][0].is_meta  # which its method has forgotten
    assert not given.x.is_meta
    assert not given.parts["y"][0].is_meta
    assert found[1]["some"][0].x.is_meta
    assert (found[1]["text"], found[2].is_meta, slotted.x.is_meta) == ("a", True, False)


def test_images_in_it_come_in_the_layout():
    found = sent([Moved(torch.zeros(2, 3, 4, 4))], torch.device("cpu"), LAST)[0]
    assert found.x.is_contiguous(memory_format=LAST)


def test_tensors_in_it_are_seen_behind_the_others_and_changed_in_a_copy():
    given = Moved(torch.zeros(3))
    assert [len(t) for t in tensors((given, torch.ones(2)))] == [2, 3, 3]
    assert leaves((given,)) == [given]
    found = mapped(given, lambda t: t + 5)
    assert type(found) is Moved
    assert (found.x.tolist(), found.parts["y"][0].tolist(), given.x.tolist()) == ([5] * 3, [6] * 3, [0] * 3)


@pytest.mark.parametrize(
    ("tree", "count"),
    [
        (Moved(torch.zeros(7), num_graphs=4), 4),
        (Moved(torch.zeros(7), batch_size=5), 5),
        (Moved(torch.zeros(7), batch_size=torch.Size([5])), 7),
        ((Moved(torch.zeros(7)), torch.zeros(3)), 3),
        ({"one": Moved(torch.zeros(7))}, 7),
    ],
)
def test_its_samples_are_counted_as_it_says(tree, count):
    assert samples(tree) == count


def test_it_is_never_cut():
    given = (Moved(torch.zeros(4)), torch.zeros(4))
    assert undivided(given, 4) == "a Moved"
    assert by_sample(given, 4, lambda t: t[:2]) is given
    assert cut(given, 4, 2) is given


def test_what_else_has_such_a_method_is_no_such_object():
    @dataclass
    class Known:
        x: torch.Tensor

        def to(self, device):
            raise ValueError

    assert movable(Moved(torch.zeros(1)))
    for other in (torch.zeros(1), nn.Linear(1, 1), Known(torch.zeros(1)), Moved, torch.float32, 1, "a", None):
        assert not movable(other)
    assert sent(Known(torch.zeros(1)), META, PLAIN).x.is_meta
