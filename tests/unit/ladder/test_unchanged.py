"""A rung for which a timing chose what stood there before is no variant: by chance it would join."""

import pytest
from tests.unit.ladder.test_first_round import make_ladder
from tests.unit.ladder.turning import through

from laptime.ladder import run as ladder_module
from laptime.records import SetupRecord, read_record, write_record
from laptime.spec import OptimizationSpec


def ran(tmp_path, monkeypatch, **chosen):
    """A ladder in which each of the named rungs makes an epoch shorter, and settles on what is given for it."""
    ladder = make_ladder(tmp_path, monkeypatch, lambda names: 10.0 * 0.9 ** len(names & chosen.keys()), ablation=False)
    launch = ladder_module.launch

    def settling(launcher, spec, folder, hooks):
        found = launch(launcher, spec, folder, hooks)
        settled = tuple(OptimizationSpec(name=o.name, options=chosen.get(o.name, {})) for o in spec.optimizations)
        workers = next((o.options.get("count", 0) for o in settled if o.name == "workers"), 0)
        setup = SetupRecord(batch_size=32, loader="items", optimizer="Adam", workers=workers)
        write_record(folder / "record.json", found.model_copy(update={"settled": settled, "setup": setup}))
        return read_record(folder / "record.json")

    monkeypatch.setattr(ladder_module, "launch", settling)
    return ladder, through(ladder)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("workers", {"count": 0}, "loading is fastest with 0 loader workers, as many as before"),
        ("products", {"layers": "none"}, "no layer gains as a product"),
    ],
)
def test_what_settles_on_what_was_there_is_left_out_after_one_process(tmp_path, monkeypatch, name, options, said):
    ladder, told = ran(tmp_path, monkeypatch, **{name: options})
    (left,) = [o for o in ladder.record.left_out if o.variant == f"cpu-{name}"]
    assert said in left.reason
    assert [t for t in told if t.startswith(f"cpu-{name},")] == [f"cpu-{name}, round 1 of 2"]
    assert f"cpu-{name}" not in {r.variant for r in ladder.record.rungs}
    assert not any(o.name == name for r in ladder.runs for o in r.spec.optimizations)


@pytest.mark.parametrize(("name", "options"), [("workers", {"count": 2}), ("products", {"layers": "0"})])
def test_what_settles_on_something_joins_where_it_is_faster(tmp_path, monkeypatch, name, options):
    ladder, _ = ran(tmp_path, monkeypatch, **{name: options})
    assert {r.variant: r.joined for r in ladder.record.rungs}[f"cpu-{name}"]
