"""A user's worker_init_fn is called in each loader worker, as DataLoader calls it, and nowhere else."""

import pytest
import torch
from tests.own_files import DICTIONARY, place, write
from tests.unit.conftest import make_spec
from tests.unit.own.test_lightning_module import LOADER, lit

from laptime import worker
from laptime.catalogue.own import place_of
from laptime.data.own.few import few_in_memory
from laptime.data.own.opened import open_own
from laptime.data.own.workers import refused_workers
from laptime.engine.build import build, make_recipe, open_data
from laptime.errors import LaptimeError
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec

BEGIN = """

def begin(worker):
    info = torch.utils.data.get_worker_info()
    info.dataset.x = info.dataset.x * 0 + 10 + worker + info.num_workers
"""
NAMED = ('    name = "rows"', '    name = "rows"\n    worker_init_fn = staticmethod(lambda worker: begin(worker))')


def batches(name, count, **changes):
    chosen = (OptimizationSpec(name="workers", options={"count": count}),)
    data = inspect(name)
    spec = make_spec(data=data, workload="rows", optimizations=chosen, **changes)
    parts = build(make_recipe(spec, open_data(spec), chosen), mark=lambda _: None)
    return [batch.inputs["input_values"].unique().tolist() for batch in parts.loader.epoch(0)]


@pytest.mark.parametrize("limits", [{}, {"limit_train": 40}])
def test_each_worker_finds_the_users_own_data_set_and_its_number(file, limits):
    found = batches(write(file, DICTIONARY + BEGIN, NAMED), 2, **limits)
    assert found == [[12.0], [13.0]] * (len(found) // 2) + [[12.0]] * (len(found) % 2)


def test_without_workers_it_is_not_called(file):
    data = open_own(*place_of(write(file, DICTIONARY + BEGIN, NAMED)))
    assert data.train.begin is not None
    assert few_in_memory(data, 4, 16).train.begin is None, "a probe's items are in memory, in another data set"
    assert all(len(values) > 1 for values in batches(f"{file}:Workload", 0))


def test_what_a_file_has_is_known_before_it_is_run(file):
    assert inspect(write(file, DICTIONARY + BEGIN, NAMED)).own.begun
    assert not inspect(write(file.with_name(f"plain_{file.name}"), DICTIONARY)).own.begun


@pytest.mark.parametrize("code", ["raise ValueError('no shard')", "sys.exit('no shard')"])
def test_where_it_fails_workers_are_left_out_with_its_line(file, code, tmp_path):
    begin = BEGIN.replace("    info.dataset", f"    {code}\n    info.dataset")
    name = write(file, "import sys\n" + DICTIONARY + begin, NAMED)
    said = refused_workers(open_own(*place_of(name)))["workers"]
    assert "no shard" in said
    assert place(file, code).strip("()") in said
    chosen = (OptimizationSpec(name="workers", options={"count": 1}),)
    spec = make_spec(data=inspect(name), workload="rows", epochs=1, warmup_epochs=0, optimizations=chosen)
    record = worker.run(spec, tmp_path / "run")
    assert record.status == "failed"
    assert place(file, code).strip("()") in record.error


def test_what_can_not_be_called_is_refused(file):
    name = write(file, DICTIONARY, ('    name = "rows"', '    name = "rows"\n    worker_init_fn = 3'))
    with pytest.raises(LaptimeError, match=r"worker_init_fn of .* is a int: make it a function of a worker's number"):
        inspect(name)


def loading(arguments):
    return LOADER, f"return DataLoader(self.train, batch_size=32, shuffle=True, {arguments})"


def notes_of(file, *changes):
    return open_own(*place_of(lit(file, *changes))).notes


def test_that_of_a_lightning_modules_training_loader_is_taken(file):
    data = open_own(*place_of(lit(file, loading("worker_init_fn=torch.set_num_threads"))))
    assert (data.train.begin, data.test.begin, data.notes) == (torch.set_num_threads, None, ())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("num_workers=2", "num_workers=2 of its training loader is not taken: the baseline fetches without workers"),
        ("pin_memory=True, timeout=9, num_workers=1", "num_workers=1, pin_memory=True, timeout=9 of its training"),
        ("num_workers=1, persistent_workers=True, prefetch_factor=4", "persistent_workers=True, prefetch_factor=4 of"),
        ("num_workers=1, multiprocessing_context='spawn'", "num_workers=1, multiprocessing_context=spawn of"),
        ("pin_memory_device='cuda', in_order=False", "pin_memory_device=cuda, in_order=False of its training loader"),
        ("generator=torch.Generator()", "the generator of its training loader draws nothing: the order follows from"),
    ],
)
def test_what_is_not_taken_of_a_loader_is_noted(file, arguments, said):
    (note,) = notes_of(file, loading(arguments))
    assert said in note


def test_the_generator_of_a_sampler_is_noted(file):
    sampler = "torch.utils.data.RandomSampler(self.train, generator=torch.Generator())"
    (note,) = notes_of(file, (LOADER, f"return DataLoader(self.train, batch_size=32, sampler={sampler})"))
    assert note.startswith("the generator of its training loader draws nothing")


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (85, ("the last sample joins the batch before it, which drop_last leaves out",)),
        (100, ("the last, smaller batch is trained on, which drop_last leaves out",)),
        (64, ()),
    ],
)
def test_what_drop_last_leaves_out_is_noted(file, size, said):
    loader = f"return DataLoader(self.train, batch_size={size}, shuffle=True, drop_last=True)"
    assert notes_of(file, (LOADER, loader)) == said


def test_what_is_not_taken_of_the_tests_loader_is_noted(file):
    change = ("batch_size=64)", "batch_size=48, drop_last=True, worker_init_fn=torch.set_num_threads)")
    assert notes_of(file, change) == (
        "the test is on all samples, of which its loader's drop_last leaves 16 out",
        "worker_init_fn of its test loader is not called, since test data are read without workers",
    )
