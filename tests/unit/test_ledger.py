"""The ledger holds where each variant last ran; shortened epochs never replace whole ones."""

from tests.unit.conftest import make_ladder_record, make_spec

from laptime.ledger import Ledger, read_ledger, with_ladder
from laptime.records import EpochRecord, Machine, RunRecord


def records(samples: int, times: tuple[float, ...], variant: str = "cpu-bf16") -> list[RunRecord]:
    return [
        RunRecord(
            status="done",
            spec=make_spec(variant=variant, repeat=repeat),
            machine=Machine(cpu="a CPU", cores=2, torch="2.15"),
            epochs=(EpochRecord(index=0, epoch_s=seconds, samples=samples, test_accuracy=0.5),),
            ended_at=0.0,
        )
        for repeat, seconds in enumerate(times)
    ]


LADDER = make_ladder_record(id="x", commit="abc", epochs=8)


def test_medians_and_where_it_ran():
    entry = with_ladder(Ledger(), LADDER, records(100, (2.0, 3.0, 7.0))).find("cifar", "cpu-bf16")
    assert (entry.epoch_s, entry.n, entry.commit, entry.machine) == (3.0, 3, "abc", "a CPU, 2 cores")
    assert (entry.samples_per_s, entry.quality, entry.date) == (33.3, 0.5, "1970-01-01")
    assert entry.epochs == 1  # its own, whatever the ladder's others trained


def test_shortened_epochs_do_not_replace_whole_ones():
    whole = with_ladder(Ledger(), LADDER, records(100, (2.0,)))
    both = with_ladder(whole, LADDER, [*records(10, (0.1,)), *records(10, (0.5,), "cpu-resident")])
    assert both.find("cifar", "cpu-bf16").epoch_s == 2.0
    assert both.find("cifar", "cpu-resident").epoch_s == 0.5
    assert with_ladder(both, LADDER, records(100, (1.0,))).find("cifar", "cpu-bf16").epoch_s == 1.0


def test_failed_runs_do_not_enter(tmp_path):
    failed = RunRecord(status="failed", error="no", spec=make_spec())
    assert with_ladder(Ledger(), LADDER, [failed]).entries == ()
    assert read_ledger(tmp_path / "none.json") == Ledger()
