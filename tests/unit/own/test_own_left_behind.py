"""What reading items leaves behind: draws that are kept, memory that is written over, what a loss reads of it."""

import sys

import pytest
from tests.own_files import TUPLE, own_spec, place, write
from tests.plain_loop import run

from laptime.data.own import refused
from laptime.errors import UsageError
from laptime.preflight.inspecting import inspect

_PLAIN = TUPLE.replace("nn.Dropout(), ", "")
_ITEMS = """
class Items(Dataset):
    def __init__(self, first, last):
        self.first, self.count, self.kept = first, last - first, {}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        KEPT
        return X[self.first + index] + self.kept.get(index, 0), Y[self.first + index]


class Workload:
"""
_GIVEN = "return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])"
_OF_ITEMS = (_GIVEN, "return Items(0, 64), Items(64, 96)")
_ONCE = "self.kept.setdefault(index, None if index in self.kept else torch.randn(3, 8, 8))"
_SEEDED = "self.kept[index] = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(index))"

_BUFFER = """
class Buffer:
    def __init__(self):
        self.x, self.y = torch.empty(64, 3, 8, 8), torch.empty(64, dtype=torch.int64)

    def __call__(self, items):
        for place, (x, y) in enumerate(items):
            self.x[place], self.y[place] = x, y
        return self.x[: len(items)], self.y[: len(items)]


class Workload:
    collate_fn = Buffer()
"""
_SCALED = """
class Workload:
    def collate_fn(self, items):
        x, y = torch.utils.data.default_collate(items)
        self.scale = x.abs().mean()SCALE
        return x, y
"""
_BY_SCALE = ("scores = model(x)", "scores = model(x / self.scale)")
_CLASS = "\nclass Workload:\n"


@pytest.fixture(autouse=True)
def paths(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def of_items(file, kept):
    return inspect(write(file, _PLAIN, (_CLASS, _ITEMS.replace("KEPT", kept)), _OF_ITEMS))


def test_items_that_keep_what_they_have_drawn_are_told_and_read_in_order_by_one_process(file):
    """A cache of noise: each worker would have its own for an item, and resident draws in another order."""
    found = of_items(file, _ONCE)
    for name in ("resident", "workers", "ddp", "flat-reduce"):
        assert "its items keep random numbers that they draw when they are first read" in found.own.refused[name]
    assert f"keep them ({file.name}, line " in found.notice
    assert "so that what they are goes on from the warm-up" in found.notice


@pytest.mark.parametrize("kept", ["pass", _SEEDED, "self.kept[index] = torch.randn(3, 8, 8)"])
def test_items_that_draw_each_time_or_by_their_number_are_none_of_these(kept, file):
    found = of_items(file, kept)
    assert not {"workers", "ddp", "flat-reduce"} & found.own.refused.keys()
    assert "first read" not in found.notice + found.own.refused.get("resident", "")


def test_test_items_that_keep_what_they_have_drawn_cost_no_rung(file):
    found = of_items(file, f"self.first and {_ONCE}")
    assert not {"resident", "workers", "ddp"} & found.own.refused.keys()
    assert "draw random numbers when they are first read, and keep them" in found.notice


@pytest.mark.parametrize(
    ("training", "seeding", "said"),
    [
        (TUPLE, "torch.manual_seed(index)", "its items seed torch, from which its step draws then"),
        (TUPLE, "__import__('numpy').random.seed(index)", ""),  # dropout asks torch alone
        (_PLAIN, "torch.manual_seed(index)", ""),  # nothing draws
        (TUPLE, "torch.rand(1)", ""),
    ],
)
def test_items_that_seed_what_the_step_draws_from_are_read_before_each_step(training, seeding, said, file):
    """As `torch.manual_seed(i)` before a crop: dropout is drawn behind the last item of each batch."""
    found = inspect(write(file, training, (_CLASS, _ITEMS.replace("KEPT", seeding)), _OF_ITEMS)).own.refused
    for name in ("resident", "workers", "pinned") if said else ():
        assert said in found[name]
    assert said or not [reason for reason in found.values() if "seed" in reason]


@pytest.mark.parametrize("seeding", ["torch.manual_seed(index)", "torch.manual_seed(7)", "torch.rand(1)"])
def test_test_items_that_move_generators_are_read_anew_by_resident_too(seeding, file, tmp_path):
    """What is trained behind an evaluation drops other units out where none of its items is read."""
    data = inspect(write(file, TUPLE, (_CLASS, _ITEMS.replace("KEPT", f"self.first and {seeding}")), _OF_ITEMS))
    plain, kept = (
        run(own_spec(data, variant, epochs=3, profile="none"), tmp_path / variant)
        for variant in ("cpu-baseline", "cpu-baseline+resident")
    )
    assert [e.train_loss for e in kept.epochs] == pytest.approx([e.train_loss for e in plain.epochs], rel=1e-6)


def test_batches_that_are_written_over_one_another_are_left_to_one_process(file):
    """Workers hand out a batch's memory and go on to write the next one there: other losses, without a word."""
    found = inspect(write(file, _PLAIN, (_CLASS, _BUFFER)))
    for name in ("resident", "workers"):
        assert found.own.refused[name].startswith("each of its batches is written over the one before")


@pytest.mark.parametrize("scale", ["", ".item()"])
def test_a_loss_that_reads_what_collate_fn_sets_is_given_each_batch_as_it_is_made(scale, file):
    found = inspect(write(file, _PLAIN, (_CLASS, _SCALED.replace("SCALE", scale)), _BY_SCALE))
    for name in ("resident", "workers", "pinned"):
        assert "its loss() depends on what was read last" in found.own.refused[name]


def test_what_collate_fn_sets_and_no_loss_reads_costs_nothing(file):
    found = inspect(write(file, _PLAIN, (_CLASS, _SCALED.replace("SCALE", ""))))
    assert not {"resident", "workers", "pinned"} & found.own.refused.keys()


def test_the_look_leaves_such_a_training_as_it_was(file, tmp_path):
    text = (_CLASS, _SCALED.replace("SCALE", ".item()"))
    found = run(own_spec(inspect(write(file, _PLAIN, text, _BY_SCALE))), tmp_path / "run")
    assert found.error is None


_BY_WORKER = """
class Items(Dataset):
    def __init__(self, first, last):
        self.first, self.count = first, last - first

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        worker = torch.utils.data.get_worker_info()
        return X[self.first + index] * (SCALE), Y[self.first + index]


class Workload:
"""


@pytest.mark.parametrize(
    "scale", ["1 if worker is None else 1 + worker.id", "1 + torch.initial_seed() % 7", "2 if worker else 1"]
)
def test_items_that_are_others_in_a_worker_leave_workers_out_with_their_line(scale, file):
    found = inspect(write(file, _PLAIN, (_CLASS, _BY_WORKER.replace("SCALE", scale)), _OF_ITEMS))
    said = found.own.refused["workers"]
    assert "its items are others in a worker process than in this one" in said
    assert place(file, "def __getitem__(self, index):").strip("()") in said
    assert "resident" not in found.own.refused


@pytest.mark.parametrize("scale", ["1", "torch.rand(())", "1 + next(TURN)"])
def test_items_that_are_alike_in_a_worker_or_are_others_each_time_are_fetched_there(scale, file):
    text = _BY_WORKER.replace("SCALE", scale).replace("\nclass Items", "\nTURN = iter(range(9999))\nclass Items")
    assert "workers" not in inspect(write(file, _PLAIN, (_CLASS, text), _OF_ITEMS)).own.refused


_PADDED = """
class Rows(Dataset):
    def __init__(self, first, last):
        self.first, self.count = first, last - first

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return X[self.first + index].flatten()[: LONG if index == 20 else 100], Y[self.first + index]


class Workload:
    @staticmethod
    def collate_fn(items):
        rows, labels = zip(*items)
        return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.stack(labels)
"""
_OF_ROWS = (
    (_GIVEN, "return Rows(0, 64), Rows(64, 96)"),
    ("scores = model(x)", "scores = model(x).mean(1)"),
    (
        "nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2)",
        "nn.Unflatten(1, (-1, 1)), nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2)",
    ),
)


@pytest.mark.parametrize(("long", "said"), [(100, None), (60, None), (150, "another shape of items 16 to 23")])
def test_a_rare_item_that_is_longer_is_found_by_a_look_at_all(long, said, file):
    found = inspect(write(file, _PLAIN, (_CLASS, _PADDED.replace("LONG", str(long))), *_OF_ROWS))
    assert found.own.refused.get("resident") == (said and f"its collate_fn makes {said} than of the first")


def test_a_longer_item_that_no_look_has_met_ends_resident_alone(file, tmp_path, monkeypatch):
    """All others would be padded to it, and train on other numbers without a word."""
    monkeypatch.setattr(refused, "_PATIENCE_S", 0.0)
    data = inspect(write(file, _PLAIN, (_CLASS, _PADDED.replace("LONG", "150")), *_OF_ROWS))
    assert "resident" not in data.own.refused
    found = run(own_spec(data, "cpu-resident"), tmp_path / "run")
    assert found.status == "failed"
    assert "collate_fn makes a shape of [150] of each of all 64 samples and one of [100] of the first" in found.error
    assert run(own_spec(data), tmp_path / "baseline").error is None


_STREAM = """
class Stream(torch.utils.data.IterableDataset):
    def __init__(self, first, last):
        self.first, self.count = first, last - first

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return X[self.first + index], Y[self.first + index]

    def __iter__(self):
        return (self[index] for index in range(len(self)))


class Workload:
"""


def test_a_stream_that_has_items_too_is_taken_by_their_numbers_and_by_no_ranks(file):
    """MosaicML's and litdata's, whose length is that of a rank's part."""
    given = "return Stream(0, 64), Stream(64, 96)"
    with pytest.raises(
        UsageError, match=r"a list of what it yields perhaps, or, .* Subset\(data, range\(len\(data\)\)\)"
    ):
        inspect(write(file, _PLAIN, (_CLASS, _STREAM), (_GIVEN, given)))
    sys.modules.pop(file.stem)
    numbered = "return tuple(torch.utils.data.Subset(s, range(len(s))) for s in (Stream(0, 64), Stream(64, 96)))"
    found = inspect(write(file, _PLAIN, (_CLASS, _STREAM), (_GIVEN, numbered)))
    assert not {"resident", "workers"} & found.own.refused.keys()
    for name in ("ddp", "flat-reduce"):
        assert "which may give each rank a part of them" in found.own.refused[name]
