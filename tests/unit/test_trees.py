"""Batches as users nest them."""

from collections import UserDict, namedtuple
from dataclasses import dataclass, field

import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from laptime.trees import cut, leaves, mapped, samples, sent, tensors

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


def test_only_images_take_the_layout():
    x, labels = sent((torch.zeros(2, 3, 4, 4), torch.zeros(2, 5)), torch.device("cpu"), torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert labels.is_contiguous()
