"""Batches that hold all their tensors to one batch size, as tensordict's TensorDict and its classes do."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import STEPPED, by_hand, run

from laptime.preflight.inspecting import inspect
from laptime.values.trees import cut, divided, mapped, samples, sent

# What of tensordict's makes a copy with other tensors fail: parts of another length are refused, and a dataclass of it
# keeps them elsewhere than in its attributes.
_SIZED = (
    "\nclass Workload:\n",
    """
from collections.abc import MutableMapping
from dataclasses import dataclass

class Sized(MutableMapping):
    def __init__(self, parts, batch_size):
        self._size, self._parts = torch.Size(batch_size), {}
        self.update(parts)

    @property
    def batch_size(self):
        return self._size

    @batch_size.setter
    def batch_size(self, size):
        for value in self._parts.values():
            self._fit(value, torch.Size(size))
        self._size = torch.Size(size)

    def _fit(self, value, size):
        shape = value.batch_size if isinstance(value, Sized) else value.shape
        if shape[: len(size)] != size:
            raise RuntimeError(f"batch dimension mismatch, got {size} and {shape}")

    def __setitem__(self, name, value):
        self._fit(value, self._size)
        self._parts[name] = value

    def __copy__(self):
        return Sized({n: v.__copy__() if isinstance(v, Sized) else v for n, v in self.items()}, self._size)

    def __getitem__(self, name):
        if isinstance(name, str):
            return self._parts[name]
        own = torch.empty(self._size)[name].shape
        return Sized({n: v[name] for n, v in self._parts.items()}, own)

    def __delitem__(self, name):
        del self._parts[name]

    def __iter__(self):
        return iter(self._parts)

    def __len__(self):
        return self._size[0]

    def __getitems__(self, indices):
        return self[torch.as_tensor(indices)]

    def to(self, device):
        raise AssertionError("its tensors are moved one by one")


@dataclass
class Row:
    x: torch.Tensor
    y: torch.Tensor

    def __init__(self, parts):
        object.__setattr__(self, "_parts", parts)

    def __getattribute__(self, name):
        found = object.__getattribute__(self, "_parts" if name in ("x", "y") else name)
        return found[name] if name in ("x", "y") else found

    def __setattr__(self, name, value):
        if name == "batch_size":
            self._parts.batch_size = value
        else:
            self._parts[name] = value

    def __copy__(self):
        return Row(self._parts.__copy__())

    @property
    def batch_size(self):
        return self._parts.batch_size


class Workload:
    collate_fn = staticmethod(lambda batch: batch)
""",
)
_DATA = (
    "return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])",
    "rows = Sized({'of': Sized({'x': X}, [96]), 'y': Y}, [96])\n        return rows[:64], rows[64:]",
)
_LOSS = ("x, y = batch", "x, y = batch['of']['x'], batch['y']")
_SILENT = ("nn.Dropout(), ", "")


@pytest.mark.parametrize("variant", ["baseline", "baseline+resident", "baseline+workers:count=1", "baseline+no-reads"])
def test_they_train_as_by_hand(file, variant, tmp_path):
    data = inspect(write(file, TUPLE, _SIZED, _DATA, _LOSS, _SILENT, ("    def loss(", STEPPED)))
    assert {"resident", "workers"}.isdisjoint(data.own.refused)
    found = run(own_spec(data, f"cpu-{variant}", learning_rate=0.1, epochs=2, warmup_epochs=1), tmp_path / "run")
    assert found.error is None
    assert [e.train_loss for e in found.epochs] == pytest.approx(by_hand(file, 2), rel=1e-6)


def test_they_train_in_micro_batches(file, tmp_path):
    parts = ("    batch_size = 16\n", "    batch_size = 16\n    micro_batch_size = 5\n")
    data = inspect(write(file, TUPLE, parts, _SIZED, _DATA, _LOSS, _SILENT, ("    def loss(", STEPPED)))
    found = run(own_spec(data, "cpu-baseline", learning_rate=0.1, epochs=2, warmup_epochs=1), tmp_path / "run")
    assert found.error is None
    assert [e.train_loss for e in found.epochs] == pytest.approx(by_hand(file, 2), rel=1e-5)


@pytest.fixture
def module(file, monkeypatch):
    write(file, TUPLE, _SIZED)
    monkeypatch.syspath_prepend(str(file.parent))
    return __import__(file.stem)


def batch(module, kind):
    inner = module.Sized({"x": torch.arange(12.0).view(6, 2)}, [6])
    whole = {"x": torch.arange(12.0).view(6, 2), "y": torch.arange(6)}
    return module.Sized({"of": inner, **whole}, [6]) if kind == "dictionary" else module.Row(module.Sized(whole, [6]))


@pytest.mark.parametrize("kind", ["dictionary", "class"])
def test_parts_of_one_have_their_own_size_and_leave_it_as_it_is(module, kind):
    given = batch(module, kind)
    y_of = (lambda b: b["y"]) if kind == "dictionary" else (lambda b: b.y)
    taken = cut(given, 6, 8)
    assert (samples(taken), taken.batch_size, y_of(taken).tolist()) == (8, (8,), [0, 1, 2, 3, 4, 5, 0, 1])
    assert [tuple(p.batch_size) for p in divided(given, 6, 4)] == [(3,), (3,)]
    assert y_of(sent(given, torch.device("meta"), torch.contiguous_format)).device.type == "meta"
    assert (given.batch_size, y_of(given).tolist(), y_of(given).device.type) == ((6,), [0, 1, 2, 3, 4, 5], "cpu")


def test_one_whose_tensors_come_to_differ_in_length_holds_them_all_the_same(module):
    found = mapped(batch(module, "dictionary"), lambda t: t[:2] if t.dim() > 1 else t)
    assert (len(found["x"]), len(found["y"]), found.batch_size, found["of"].batch_size) == (2, 6, (), (2,))
