"""Whether a remedy keeps quality: one that changes what is learnt has a whole training, once and where it can tell."""

import pytest
from tests.unit.ladder.advised import a_finding, a_run, make_ladder, the_advice, through

from laptime.records import RunRecord, read_ladder

BASELINE, RESIDENT, TAPS = "cpu-baseline", "cpu-resident", "cpu-baseline+dead-taps"
TRAINING = "a whole training for its quality"


def reaching(reached: float, few: float = 0.8):
    """Runs in which a remedy reaches an accuracy after all epochs, and another one in its short turns."""

    def run(spec) -> RunRecord:
        record = a_run(spec)
        if not any(o.name == "dead-taps" for o in spec.optimizations):
            return record
        accuracy = reached if spec.epochs == 3 else few
        epochs = tuple(e.model_copy(update={"test_accuracy": accuracy}) for e in record.epochs)
        return record.model_copy(update={"epochs": epochs})

    return run


def judged(tmp_path, monkeypatch, run, klass="statistical", **more):
    finding = a_finding("taps", TAPS, klass=klass)
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: (finding,)}), run, **more)
    told = through(ladder)
    measured = ladder.counsel.advice[BASELINE].findings[0].measured
    return measured, [t for t in told if TRAINING in t], ladder


@pytest.mark.parametrize("klass", ["exact", "numeric"])
@pytest.mark.parametrize(("reached", "kept"), [(0.8, True), (0.5, False)])
def test_what_learns_alike_is_judged_by_its_short_turns(tmp_path, monkeypatch, klass, reached, kept):
    measured, trainings, _ = judged(tmp_path, monkeypatch, reaching(0.0, few=reached), klass)
    assert measured.quality_kept is kept
    assert trainings == []


@pytest.mark.parametrize("klass", ["statistical", "model"])
@pytest.mark.parametrize(
    ("reached", "kept", "said"),
    [
        (0.83, True, "quality better: accuracy 83.0 % (+3.0 pp, "),
        (0.75, False, "quality lost: accuracy 75.0 % (−5.0 pp, "),
        # One training each on 10,000 images tells no less than about a point.
        (0.80, None, "quality unclear: accuracy 80.0 % (0.0 pp, −1.1 to +1.1)"),
    ],
)
def test_what_learns_otherwise_has_one_whole_training(tmp_path, monkeypatch, klass, reached, kept, said):
    measured, trainings, ladder = judged(tmp_path, monkeypatch, reaching(reached, few=0.1), klass)
    assert trainings == [f"{TAPS}, {TRAINING}"]
    spec = ladder.verified[-1].spec
    assert (spec.epochs, spec.repeat, spec.check, spec.save_model, spec.profile) == (3, 0, False, False, "none")
    assert measured.quality_kept is kept
    assert measured.quality.startswith(said)
    # Its epochs are no part of what was timed beside the advised variant.
    assert measured.gain == pytest.approx(0.2)
    assert measured.n == 3


def test_a_training_that_fails_is_not_repeated_and_judges_nothing(tmp_path, monkeypatch):
    def run(spec):
        whole = spec.epochs == 3 and spec.variant == TAPS
        return RunRecord(status="failed", error="boom", spec=spec) if whole else a_run(spec)

    measured, trainings, _ = judged(tmp_path, monkeypatch, run)
    assert len(trainings) == 1
    assert (measured.quality_kept, measured.quality) == (None, "quality not judged: its quality was not measured")
    assert measured.gain == pytest.approx(0.2)


def test_no_training_where_the_remedy_is_slower_or_quality_can_not_be_judged(tmp_path, monkeypatch):
    slow = a_finding("slow", f"{BASELINE}+keep-pages", klass="statistical")
    ladder = make_ladder(tmp_path / "slow", monkeypatch, the_advice({BASELINE: (slow,)}))
    assert not [t for t in through(ladder) if TRAINING in t]

    def unlearnt(spec):
        record = a_run(spec)
        epochs = tuple(e.model_copy(update={"test_accuracy": 0.2}) for e in record.epochs)
        return record.model_copy(update={"epochs": epochs})

    measured, trainings, _ = judged(tmp_path / "unlearnt", monkeypatch, unlearnt)
    assert trainings == []
    assert measured.quality == "quality not judged: the baseline reached 20.0 %, below the floor of 60.0 %"


def test_what_the_ladder_has_trained_itself_is_not_trained_again(tmp_path, monkeypatch):
    known = a_finding("resident", f"{BASELINE}+resident", klass="statistical")
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: (known,)}))
    assert not [t for t in through(ladder) if TRAINING in t]
    measured = ladder.counsel.advice[BASELINE].findings[0].measured
    assert measured.quality == "quality unclear: accuracy 80.0 % (0.0 pp, −1.1 to +1.1)"


def test_a_remedy_that_two_variants_share_is_trained_once(tmp_path, monkeypatch):
    both = {
        BASELINE: (a_finding("both", f"{BASELINE}+resident+dead-taps", klass="statistical"),),
        RESIDENT: (a_finding("taps", f"{RESIDENT}+dead-taps", klass="statistical"),),
    }
    ladder = make_ladder(tmp_path, monkeypatch, the_advice(both), reaching(0.83))
    told = through(ladder)
    assert [t for t in told if TRAINING in t] == [f"{BASELINE}+resident+dead-taps, {TRAINING}"]
    # Each has its own rounds beside what it was advised on.
    assert sum("round" in t and "verification" in t for t in told) == 12
    for name in both:
        assert ladder.counsel.advice[name].findings[0].measured.quality_kept is True


def test_a_ladder_as_short_as_the_turns_needs_no_training(tmp_path, monkeypatch):
    finding = a_finding("taps", TAPS, klass="statistical")
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: (finding,)}), reaching(0.0, few=0.83))
    ladder.request = ladder.request.model_copy(update={"epochs": 2})
    ladder.record = ladder.record.model_copy(update={"epochs": 2})
    assert not [t for t in through(ladder) if TRAINING in t]
    measured = ladder.counsel.advice[BASELINE].findings[0].measured
    assert measured.quality_kept is True
    assert measured.quality.startswith("quality better: accuracy 83.0 %")


def test_a_ladder_that_was_interrupted_in_the_training_goes_on_with_it_alone(tmp_path, monkeypatch):
    started = []

    def run(spec):
        started.append(spec.variant)
        if spec.epochs == 3 and spec.variant == TAPS and len(started) == 9:
            raise KeyboardInterrupt
        return reaching(0.83)(spec)

    with pytest.raises(KeyboardInterrupt):
        judged(tmp_path, monkeypatch, run)
    file = tmp_path / "ladder" / "ladder.json"
    ended = read_ladder(file).turns
    file.unlink()  # of a ladder that the next one here is made as, not opened as
    assert (ended, len(started)) == (8, 9)  # two of the ladder, three rounds of two; and the training
    finding = a_finding("taps", TAPS, klass="statistical")
    ladder = make_ladder(tmp_path, monkeypatch, the_advice({BASELINE: (finding,)}), run)
    ladder.before = ended
    told = through(ladder)
    assert (len(told), len(started)) == (9, 10)
    measured = ladder.counsel.advice[BASELINE].findings[0].measured
    assert (measured.n, measured.quality_kept) == (3, True)
