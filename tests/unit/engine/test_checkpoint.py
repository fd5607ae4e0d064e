"""A resumed run is the uninterrupted one, bit for bit; and what is wrong with a checkpoint is told or got round."""

import hashlib
import json
import random
from decimal import Decimal

import pytest
import torch
from tests.breaking_off import assert_alike, broken_off, figures, weights
from tests.unit.conftest import make_data, make_spec
from torch import nn

from laptime import worker
from laptime.catalogue import parse_optimization
from laptime.data.objects import open_objects
from laptime.engine.checkpoint import Checkpoints
from laptime.engine.state import state_of
from laptime.errors import DataError, UsageError
from laptime.records import EpochRecord
from laptime.variants import resolve
from laptime.workloads.base import classify, classify_each
from laptime.world import ALONE

EPOCHS = 3
CASES = {
    "baseline": (),
    "optimized": ("large-batch:size=8:schedule=onecycle", "ema", "flip:mode=random", "crop", "products:layers=all"),
    "selective": ("selective-backprop:begin=0.3:every=2", "flip", "ema"),
    "linear": ("large-batch:size=8:schedule=linear", "crop:mode=reflect", "resident"),
    "recorded linear": ("no-reads", "graph", "linear-decay:warmup=0.5"),
    "nesterov": ("sgd-nesterov", "onecycle", "progressive-resizing:step=4"),
    "recorded": ("no-reads", "graph", "resident"),
}


@pytest.fixture(autouse=True)
def small_data(monkeypatch):
    monkeypatch.setattr(worker, "open_data", lambda spec: make_data(train=16, test=6, size=16))


class Tiny:
    """A net of which a checkpoint is small; its second convolution works on a 2x2 map, with dead taps."""

    name = "tiny"

    def make_model(self, classes: int, weights: str, channels: int = 3) -> nn.Module:
        first, second = nn.Conv2d(channels, 4, 3, stride=2, padding=1), nn.Conv2d(4, 6, 5, padding=2)
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes))
        body = (first, nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(4), second, nn.BatchNorm2d(6), nn.ReLU())
        return nn.Sequential(*body, *head)

    forward = staticmethod(classify)

    def by_sample(self, smoothing):
        return classify_each


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr("laptime.engine.build.find", lambda name: Tiny())


def spec_of(case: str = "baseline", **changes):
    chosen = tuple(parse_optimization(text) for text in CASES[case])
    if case == "optimized":
        rest = (o for o in resolve("cpu-optimized").optimizations if o.name not in {c.name for c in chosen})
        chosen = (*rest, *chosen)
    fields = {"optimizations": chosen, "epochs": EPOCHS, "batch_size": 8, "check": False, "save_model": True}
    return make_spec(**{**fields, "warmup_epochs": 1, "warmup_steps": 1, **changes})


@pytest.mark.parametrize(
    ("case", "warmup_epochs"),
    # The warm-up decides whether the optimizer has a state already that is written into.
    [
        ("baseline", 0),
        ("baseline", 1),
        ("optimized", 1),
        ("nesterov", 1),
        ("linear", 1),
        ("selective", 1),
        ("recorded linear", 1),
        ("recorded", 0),
        ("recorded", 1),
    ],
)
def test_a_resumed_run_equals_the_uninterrupted_one(case, warmup_epochs, tmp_path):
    spec = spec_of(case, warmup_epochs=warmup_epochs)
    whole = worker.run(spec, tmp_path / "whole")
    assert whole.status == "done", whole.error
    kept = spec.model_copy(update={"checkpoints": str(tmp_path / "kept")})
    broken_off(kept, tmp_path / "run", after=1)
    torch.manual_seed(99)  # whatever the process did before
    resumed = worker.run(kept, tmp_path / "run")
    assert resumed.status == "done", resumed.error
    assert_alike(resumed, whole, (tmp_path / "whole", tmp_path / "run"))
    assert [(e.interrupted, e.resumed) for e in resumed.epochs] == [(True, False), (False, True), (False, False)]
    assert [s.epoch for s in resumed.starts] == [0, 1]
    assert any(text.endswith("its last checkpoint (at epoch 1)") for text in resumed.cautions)
    assert resumed.restarts == 1
    assert (whole.restarts, whole.starts) == (0, ())
    assert all(e.kept and e.checkpoint_s > 0 for e in resumed.epochs[1:])
    assert all(e.checkpoint_s is None and not e.resumed for e in whole.epochs)
    assert resumed.epochs[-1].train_s_so_far == pytest.approx(sum(e.epoch_s for e in resumed.epochs))


def test_a_run_that_goes_on_with_another_torch_says_so(tmp_path, monkeypatch):
    spec = spec_of(epochs=2, checkpoints=str(tmp_path / "kept"))
    with monkeypatch.context() as before:
        before.setattr("laptime.engine.checkpoint_pointer.torch.__version__", "2.0.0")
        broken_off(spec, tmp_path / "run", after=1)
    record = worker.run(spec, tmp_path / "run")
    said = f"torch was 2.0.0 and is {torch.__version__}: losses since the break may differ from those of a run without"
    assert [note for note in record.notes if note.startswith(said)]
    assert [start.torch for start in record.starts] == ["2.0.0", torch.__version__]


def test_what_was_chosen_by_timing_is_chosen_once(tmp_path):
    chosen = (*map(parse_optimization, ("resident", "products")),)
    spec = spec_of(optimizations=chosen, checkpoints=str(tmp_path / "kept"))
    facts = broken_off(spec, tmp_path / "run", after=1)
    record = worker.run(spec, tmp_path / "run")
    assert "layers" in facts.settled()[1].options
    assert record.settled == facts.settled()


def test_a_run_that_had_ended_is_told_again(tmp_path):
    spec = spec_of(epochs=1, checkpoints=str(tmp_path / "kept"))
    first, second = (worker.run(spec, tmp_path / name) for name in ("first", "second"))
    assert figures(first) == figures(second)
    assert torch.equal(weights(tmp_path / "first")["9.weight"], weights(tmp_path / "second")["9.weight"])


def test_the_last_two_are_kept_and_a_damaged_one_falls_back(tmp_path):
    place = tmp_path / "kept"
    spec = spec_of(epochs=4, checkpoints=str(place))
    broken_off(spec, tmp_path / "run", after=3)
    names = [w["name"] for w in json.loads((place / "latest.json").read_text())["written"]]
    assert names == ["checkpoint-0.pt", "checkpoint-2.pt"]
    assert not list(place.glob(".*"))
    newest = place / names[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    record = worker.run(spec, tmp_path / "run")
    assert record.status == "done", record.error
    assert [e.index for e in record.epochs] == [0, 1, 2, 3]
    assert [e.resumed for e in record.epochs] == [False, False, True, False]
    assert any("after 3 epochs" in note and "damaged" in note for note in record.notes)


def test_checkpoints_that_cost_more_than_their_share_are_left_out(tmp_path, capfd):
    place = tmp_path / "kept"
    left_out = "checkpoints were left out, each of which takes over 1e-09 times the training since the last"
    for share, written, notes in ((1e-9, [True, False, False], (left_out,)), (1e9, [True, True, True], ())):
        spec = spec_of(checkpoints=str(place / str(share)), checkpoint_share=share)
        record = worker.run(spec, tmp_path / "run")
        assert [e.checkpoint_s is not None for e in record.epochs] == written
        assert record.notes == notes
    assert capfd.readouterr().out.count(left_out) == 1  # a run that is broken off leaves no record


def test_after_the_last_epoch_one_must_be_cheap(tmp_path, monkeypatch):
    """Little is left to be broken off then."""
    monkeypatch.setattr("laptime.engine.checkpoint.state_of", lambda parts: {})
    for cost_s, written in ((0.15, True), (0.25, False)):
        place = tmp_path / str(cost_s)
        checkpoints = Checkpoints(spec_of(epochs=2, checkpoints=str(place), checkpoint_share=2.0), ALONE)
        checkpoints.find()
        epochs = [EpochRecord(index=n, epoch_s=2.0, samples=8) for n in range(2)]
        assert checkpoints.keep(None, epochs[:1], ()).checkpoint_s is not None
        checkpoints._last_s = cost_s
        assert (checkpoints.keep(None, epochs, ()).checkpoint_s is not None) is written
        assert checkpoints.notes == []


def test_both_checkpoints_stay_whole_where_some_were_left_out(tmp_path, monkeypatch):
    """Written after the epochs 1, 4 and 7, each would have the name of the one before it."""
    place = tmp_path / "kept"
    checkpoints = Checkpoints(spec_of(checkpoints=str(place), checkpoint_share=1.0), ALONE)
    monkeypatch.setattr("laptime.engine.checkpoint.state_of", lambda parts: {})
    checkpoints.find()
    for count in range(1, 8):
        checkpoints._last_s = 0.0 if count % 3 == 1 else 1e9
        checkpoints.keep(None, tuple(EpochRecord(index=n, epoch_s=1.0, samples=8) for n in range(count)), ())
        written = json.loads((place / "latest.json").read_text())["written"]
        for said in written:
            assert hashlib.sha256((place / said["name"]).read_bytes()).hexdigest() == said["sha256"]
    assert [said["epochs"] for said in written] == [7, 4]


def test_another_run_s_checkpoints_are_refused(tmp_path):
    spec = spec_of(epochs=1, checkpoints=str(tmp_path / "kept"))
    worker.run(spec, tmp_path / "run")
    for change in ({"seed": 5}, {"learning_rate": 0.5}):
        record = worker.run(spec.model_copy(update=change), tmp_path / "other")
        assert record.status == "failed"
        assert "of another run" in record.error
        assert str(tmp_path / "kept") in record.error


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "damaged"),
        ('{"schema": "laptime.checkpoint/9"}', "laptime.checkpoint/9"),
        ('{"schema": "laptime.checkpoint/1"}', "spec"),
        (
            '{"schema": "laptime.checkpoint/1", "spec": "a", "written": '
            '[{"name": "../../etc/passwd", "sha256": "", "epochs": 1}]}',
            "passwd",
        ),
    ],
)
def test_a_wrong_pointer_is_one_sentence(text, named, tmp_path):
    (tmp_path / "latest.json").write_text(text)
    with pytest.raises(DataError) as caught:
        Checkpoints(make_spec(checkpoints=str(tmp_path)), ALONE).find()
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["http://host/x", ""])
def test_a_place_of_another_kind_is_refused(place):
    with pytest.raises(UsageError, match="no place for runs"):
        Checkpoints(make_spec(checkpoints=place), ALONE).find()


def test_a_checkpoint_that_can_t_be_written_costs_a_note(tmp_path):
    place = tmp_path / "kept"
    (place / "checkpoint-1.pt").mkdir(parents=True)
    record = worker.run(spec_of(epochs=2, checkpoints=str(place)), tmp_path / "run")
    assert record.status == "done", record.error
    assert record.epochs[0].checkpoint_s is None
    assert record.epochs[1].checkpoint_s > 0
    assert any("after epoch 0" in note for note in record.notes)


@pytest.mark.parametrize(("held", "epochs_noted"), [(lambda: None, [0, 1]), (Decimal("0.1"), [])])
def test_an_optimizer_that_no_checkpoint_holds_costs_a_ladder_s_run_notes(held, epochs_noted, tmp_path, monkeypatch):
    plain = state_of

    def with_own(parts):
        parts.optimizer.param_groups[0]["own"] = held
        return plain(parts)

    monkeypatch.setattr("laptime.engine.checkpoint.state_of", with_own)
    spec = spec_of(epochs=2, checkpoints=str(tmp_path / "kept"), checkpoint_share=1e9, save_model=False)
    noted = broken_off(spec, tmp_path / "run", after=2).checkpoints.notes
    assert [f"no checkpoint was written after epoch {n}" for n in epochs_noted] == [n.split(":")[0] for n in noted]
    record = worker.run(spec, tmp_path / "run")
    assert record.status == "done", record.error
    assert [e.index for e in record.epochs] == [0, 1]
    assert (record.restarts, record.cautions) == (0, ())
    assert any("began anew" in note for note in record.notes) is not bool(epochs_noted)


def test_a_start_that_was_ended_in_its_warm_up_is_none(tmp_path):
    spec = spec_of(checkpoints=str(tmp_path / "kept"))
    Checkpoints(spec, ALONE).find()
    broken_off(spec, tmp_path / "run", after=1)
    Checkpoints(spec, ALONE).find()
    checkpoints = Checkpoints(spec, ALONE)
    assert len(checkpoints.find().epochs) == 1
    assert [s.epoch for s in checkpoints.starts] == [0, 1]


def test_a_place_that_takes_nothing_costs_notes(tmp_path):
    (tmp_path / "kept").symlink_to(tmp_path / "gone")
    checkpoints = Checkpoints(spec_of(checkpoints=str(tmp_path / "kept")), ALONE)
    assert checkpoints.find() is None
    assert "was not noted" in checkpoints.notes[0]


def test_a_transfer_that_is_tried_again_draws_nothing_from_the_training(tmp_path, monkeypatch):
    """Pauses between tries are drawn from `random`, as boto3 does, too."""

    class TriedAgain:
        def __init__(self, place):
            self.place, self.url, self.read, self.seen = place, place.url, place.read, place.seen

        def write(self, body, name):
            random.random()
            self.place.write(body, name)

        def swap(self, body, name, mark):
            random.random()
            return self.place.swap(body, name, mark)

    worker.run(spec_of(epochs=2), tmp_path / "whole")
    expected = random.getstate()
    monkeypatch.setattr("laptime.engine.checkpoint.open_objects", lambda url: TriedAgain(open_objects(url)))
    record = worker.run(spec_of(epochs=2, checkpoints=str(tmp_path / "kept")), tmp_path / "run")
    assert record.epochs[-1].checkpoint_s > 0
    assert random.getstate() == expected
