"""Batches as users nest them."""

from collections import UserDict, namedtuple
from dataclasses import dataclass, field

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from laptime.values.trees import by_sample, cut, divided, leaves, mapped, samples, sent, tensors, undivided

Pair = namedtuple("Pair", "x y")


def nested():
    return {"ids": torch.arange(6).view(3, 2), "more": Pair(torch.zeros(3), [torch.ones(3, 1), "text"])}


def test_every_tensor_is_changed_and_the_nesting_stays():
    found = mapped(nested(), lambda t: t + 1)
    assert found["ids"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert isinstance(found["more"], Pair)
    assert found["more"].y[1] == "text"
    assert found["more"].y[0].tolist() == [[2.0]] * 3


def test_a_tokenizers_dictionary_keeps_its_class():
    given = UserDict(ids=torch.zeros(2))
    found = mapped(given, lambda t: t + 1)
    assert type(found) is UserDict
    assert found["ids"].tolist() == [1, 1]
    assert given["ids"].tolist() == [0, 0]


class _Entries(dict):
    """As many write it: what it does not hold is a KeyError, where Python expects an AttributeError."""

    def __getattr__(self, name):
        return self[name]


def test_a_dictionary_that_gives_its_entries_as_attributes_is_taken():
    found = mapped(_Entries(ids=torch.zeros(2)), lambda t: t + 1)
    assert type(found) is _Entries
    assert found.ids.tolist() == [1, 1]


def test_a_packed_sequence_stays_one_and_keeps_its_sizes_on_the_cpu():
    given = pack_sequence([torch.ones(2, 1), torch.ones(4, 1)], enforce_sorted=False)
    found = mapped(given, lambda t: t + 1)
    assert isinstance(found, PackedSequence)
    assert (found.data.sum().item(), found.batch_sizes.tolist()) == (12, [2, 2, 1, 1])
    shapes = sent(given, torch.device("meta"), torch.contiguous_format)
    assert (shapes.data.is_meta, shapes.sorted_indices.is_meta, shapes.batch_sizes.is_meta) == (True, True, False)
    assert mapped(pack_sequence([torch.ones(2, 1)]), torch.clone).sorted_indices is None


@dataclass(frozen=True)
class Graphs:
    labels: torch.Tensor
    edges: list
    name: str = "molecules"
    later: torch.Tensor = field(init=False)


def test_a_dataclass_keeps_its_class_whatever_its_constructor_takes():
    given = Graphs(torch.zeros(3), [torch.ones(2, 7)])
    found = mapped(given, lambda t: t + 1)
    assert type(found) is Graphs
    assert (found.labels.tolist(), found.edges[0].shape, found.name) == ([1, 1, 1], (2, 7), "molecules")
    assert given.labels.tolist() == [0, 0, 0]
    assert (samples(found), len(leaves(found))) == (3, 3)


def test_samples_are_counted_by_the_first_tensor_that_has_a_dimension():
    assert samples({"step": torch.tensor(7), "x": torch.zeros(5, 2)}) == 5
    assert samples(["a", "b"]) == 2
    assert [t.shape for t in tensors(nested())] == [(3, 2), (3,), (3, 1)]
    assert len(leaves(nested())) == 4


def test_a_batch_is_repeated_and_cut_where_it_has_samples():
    found = cut({"x": torch.arange(3), "scale": torch.tensor(2.0), "table": torch.zeros(7)}, held=3, count=5)
    assert found["x"].tolist() == [0, 1, 2, 0, 1]
    assert found["scale"].dim() == 0
    assert len(found["table"]) == 7


@pytest.mark.parametrize("named", [False, True])
def test_a_batch_of_lists_has_as_many_samples_as_dictionaries(named: bool):
    images = [torch.full((3, 4, side), float(side)) for side in (5, 6, 7)]
    targets = tuple({"boxes": torch.zeros(3, 4), "image_id": number} for number in range(3))
    given = {"images": images, "targets": targets, "size": 9} if named else Pair(images, targets)
    assert samples(given) == 3
    found = list(cut(given, 3, 5).values() if named else cut(given, 3, 5))
    assert [image.shape[-1] for image in found[0]] == [5, 6, 7, 5, 6]
    assert [target["image_id"] for target in found[1]] == [0, 1, 2, 0, 1]
    ended = by_sample(given, 3, lambda part: part[2:])
    assert type(ended) is type(given)
    assert (samples(ended), tensors(ended)[0].shape) == (1, (3, 4, 7))
    assert samples((torch.zeros(5), [{"x": torch.zeros(5)}] * 2)) == 5  # two branches of one batch


def test_only_images_take_the_layout():
    x, labels = sent((torch.zeros(2, 3, 4, 4), torch.zeros(2, 5)), torch.device("cpu"), torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert labels.is_contiguous()


@pytest.mark.parametrize(("held", "most", "sizes"), [(7, 3, [3, 2, 2]), (6, 3, [3, 3]), (5, 1, [1] * 5), (3, 8, [3])])
def test_a_batch_is_divided_into_the_fewest_parts_of_nearly_one_size(held, most, sizes):
    batch = {"x": torch.arange(3 * held).view(held, 3), "scale": torch.tensor(2.0), "none": None}
    parts = divided(batch, held, most)
    assert [len(part["x"]) for part in parts] == sizes
    assert torch.cat([part["x"] for part in parts]).equal(batch["x"])
    assert {(part["scale"].item(), part["none"]) for part in parts} == {(2.0, None)}
    named = divided((batch["x"], {"file": [*"abcdefg"[:held]], "share": 0.3}), held, most)
    assert [(len(of["file"]), of["share"]) for _, of in named] == [(n, 0.3) for n in sizes]
    assert "".join(name for _, of in named for name in of["file"]) == "abcdefg"[:held]
    listed = divided(([*range(held)], ({"box": torch.ones(1)},) * held), held, most)
    assert [(len(images), len(targets)) for images, targets in listed] == [(n, n) for n in sizes]
    assert [i for images, _ in listed for i in images] == [*range(held)]


@pytest.mark.parametrize(
    ("batch", "odd"),
    [
        ((torch.ones(4, 3), torch.ones(()), None), None),
        ((torch.ones(4, 3), torch.ones(2, 9)), "a tensor of shape (2, 9)"),
        ((torch.ones(4, 3), ["a", "b", "c", "d"]), None),
        ({"x": torch.ones(4, 3), "of": {"file": ("a", "b", "c", "d"), "epoch": 3}}, None),
        ((torch.ones(4, 3), 0.3, [1, 2, 3, 4]), None),
        ((torch.ones(4, 3), ["a", "b", "c"]), "a str"),
        ((torch.ones(4, 3), [0.3, 0.7]), "a float"),
        ((torch.ones(4, 3), [0.3, 7]), "a float"),
        ((torch.ones(4, 3), "a"), "a str"),
        ((torch.ones(4, 3), [["a"], ["b"], ["c"], ["d"]]), "a str"),
        (([1, 2, 3, 4], [{}] * 4), None),
        (([1, 2, 3, 4], [{}] * 4, [5, 6]), "a list"),
        ({"images": [1, 2, 3, 4], "targets": [{}] * 4, "of": "a"}, "a str"),
    ],
)
def test_what_belongs_to_no_sample_is_in_the_way_of_a_division(batch, odd):
    assert undivided(batch, 4) == odd
