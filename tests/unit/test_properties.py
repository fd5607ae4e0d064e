"""What holds for any journal, store, spec and name, however it was made."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.conftest import make_data_spec, make_spec
from tests.unit.tracking.tracking_samples import MemoryStore

from laptime.catalogue import OPTIMIZATIONS
from laptime.data.bands import chosen_bands
from laptime.data.choices import read_seed, read_size, split_choices
from laptime.data.meta import verify_folder
from laptime.data.store import Store
from laptime.data.tensors import open_tensors
from laptime.data.writer import Plan, publish, writing
from laptime.errors import TrackingError, UsageError
from laptime.gate.request import seconds, share
from laptime.nodes import read_range
from laptime.records import write_json
from laptime.spec import OptimizationSpec, RunSpec, read_schedule, read_spec
from laptime.tracking.base import MetricRow, RunStart
from laptime.tracking.events import read_journal
from laptime.tracking.journal import Journal, replay
from laptime.tracking.publish import run_folder
from laptime.variants import all_names, resolve, with_options

KEYS = ("one", "two", "drei \u202e\n")
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("metrics"), st.sampled_from(KEYS), st.floats(), st.integers(0, 99)),
        st.tuples(st.just("tags"), st.sampled_from(KEYS), TEXT, TEXT),
        st.tuples(st.just("note"), st.sampled_from(KEYS), TEXT, TEXT),
        st.tuples(st.just("end"), st.sampled_from(KEYS), st.floats(0, 1e9), TEXT),
    ),
    max_size=8,
)


def one_sentence(error: Exception) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 1500
    assert "Exceeds the limit" not in str(error)  # Python's own word for too many digits


def write_journal(path: Path, calls: list[tuple[Any, ...]]) -> None:
    with Journal(path) as journal:
        for key in KEYS:
            journal.start_run(RunStart(key, key, "cifar", 1.0))
        for what, key, one, other in calls:
            match what:
                case "metrics":
                    journal.log_metrics(key, [MetricRow("loss", one, other, 1.0)])
                case "tags":
                    journal.set_tags(key, {one: other})
                case "note":
                    journal.set_note(key, one)
                case "end":
                    journal.end_run(key, "FINISHED", one)


def replayed(path: Path, store: MemoryStore) -> MemoryStore:
    replay(path, store, lambda _: None)
    return store


@settings(max_examples=40)
@given(CALLS, st.data())
def test_a_journal_cut_anywhere_replays_to_a_prefix(calls: list[tuple[Any, ...]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        whole, cut = Path(name) / "whole.jsonl", Path(name) / "cut.jsonl"
        write_journal(whole, calls)
        body, (header, events) = whole.read_bytes(), read_journal(whole)
        cut.write_bytes(body[: data.draw(st.integers(0, len(body)))])
        _, found = read_journal(cut)
        # NaN is not equal to itself, so what is compared is what is written.
        assert [e.model_dump_json() for e in found] == [e.model_dump_json() for e in events[: len(found)]]
        assert len(found) == max(0, cut.read_bytes().count(b"\n") - 1)
        store = replayed(cut, MemoryStore())
        with Journal(cut, header.target):  # another process goes on with it
            pass
        assert replayed(cut, store).created == store.created


@settings(max_examples=40)
@given(CALLS, st.integers(0, 12))
def test_a_replay_that_breaks_off_and_is_repeated_changes_nothing(calls: list[tuple[Any, ...]], after: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.jsonl"
        write_journal(path, calls)
        expected = replayed(path, MemoryStore()).runs
        path.with_suffix(".state.json").unlink()
        store = MemoryStore(breaks_after=after)
        try:
            replayed(path, store)
        except ConnectionError:
            assert after < 3 + len(calls)
        store.left = None
        for _ in range(2):
            assert replayed(path, store).runs == expected
        path.with_suffix(".state.json").unlink()  # even where what is known of the replay is lost
        assert replayed(path, store).runs == expected
        assert len(store.created) == len(KEYS)


@settings(max_examples=40)
@given(CALLS, st.data())
def test_a_journal_with_a_flipped_bit_is_read_or_refused(calls: list[tuple[Any, ...]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.jsonl"
        write_journal(path, calls)
        body = bytearray(path.read_bytes())
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(body)
        try:
            read_journal(path)
        except TrackingError as error:
            one_sentence(error)


def write_store(root: Path, classes: tuple[str, ...], pixels: np.ndarray, labels: np.ndarray) -> Path:
    store, count = Store(root), len(labels)
    with writing(store, Plan("folder", "x", classes, count, count, *pixels.shape[1:3])) as writer:
        for split in ("train", "test"):
            for start in range(0, count, 2):
                writer.add(split, pixels[start : start + 2], labels[start : start + 2])
        meta = publish(store, writer, "")
    return store.folder(meta.digest)


@settings(max_examples=25)
@given(
    st.lists(TEXT, min_size=1, max_size=4, unique=True).map(tuple),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_what_a_store_is_given_comes_out_and_nothing_else_has_its_digest(
    classes: tuple[str, ...], count: int, side: int, seed: int, data: st.DataObject
) -> None:
    drawn = np.random.default_rng(seed)
    pixels = drawn.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    labels = drawn.integers(0, len(classes), count)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folder = write_store(root, classes, pixels, labels)
        opened = open_tensors(folder)
        assert np.array_equal(opened.train.images.numpy(), pixels)
        assert np.array_equal(opened.test.labels.numpy(), labels)
        assert opened.classes == classes
        assert write_store(root, classes, pixels, labels) == folder
        assert write_store(root, (*classes, "one more"), pixels, labels) != folder
        other = pixels.copy()
        other.reshape(-1)[data.draw(st.integers(0, other.size - 1))] ^= 1
        assert verify_folder(write_store(root, classes, other, labels)).digest != folder.name


SPECS = st.builds(
    make_spec,
    variant=TEXT,
    workload=TEXT,
    optimizations=st.lists(
        st.builds(
            OptimizationSpec,
            name=TEXT,
            options=st.dictionaries(TEXT, st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | TEXT, max_size=3),
        ),
        max_size=3,
    ).map(tuple),
    epochs=st.integers(1, 99),
    seed=st.integers(-(10**9), 10**9),
    learning_rate=st.floats(1e-9, 10),
    limit_train=st.none() | st.integers(1, 10**9),
    data=st.builds(make_data_spec, path=TEXT),
)


@settings(max_examples=60)
@given(SPECS)
def test_a_spec_comes_back_from_its_file(spec: RunSpec) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_json(Path(name) / "spec.json", spec)
        found = read_spec(Path(name) / "spec.json")
    assert found == spec
    assert found.digest() == spec.digest()
    assert found.model_copy(update={"seed": spec.seed + 1}).digest() == spec.digest()
    assert found.model_copy(update={"epochs": spec.epochs + 1}).digest() != spec.digest()


@pytest.mark.parametrize("name", [f.alias or n for n, f in RunSpec.model_fields.items()])
def test_a_field_of_a_spec_that_is_wrong_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    fields = make_spec().model_dump(mode="json", by_alias=True)
    write_json(path, {**fields, name: [{"of": "another type"}]})
    with pytest.raises(UsageError, match=name):
        read_spec(path)
    write_json(path, {**fields, f"{name}_": 1})
    with pytest.raises(UsageError, match=f"{name}_: extra"):
        read_spec(path)


NAMES = (*all_names(), *(o.name for o in OPTIMIZATIONS), "size", "cpu", "baseline")
WORDS = st.lists(
    st.sampled_from(NAMES) | TEXT | st.sampled_from(("+", ":", "=", "-", ".", "true", "8", "nan")), max_size=6
)


@settings(max_examples=150)
@given(WORDS.map("".join), TEXT | WORDS.map("".join))
def test_any_text_is_a_variant_or_is_refused(text: str, setting: str) -> None:
    try:
        found = resolve(text)
    except UsageError as error:
        one_sentence(error)
        return
    assert found.name == text
    try:
        changed = with_options(found, (setting,))
    except UsageError as error:
        one_sentence(error)
        return
    assert resolve(changed.name).optimizations == changed.optimizations


@given(st.lists(st.text() | st.text("cpu-baseline+:", min_size=90), min_size=2, max_size=4, unique=True))
def test_the_folder_of_a_variant_is_one_plain_name(variants: list[str]) -> None:
    root = Path("/runs")
    folders = [run_folder(root, variant, 0) for variant in variants]
    for folder in folders:
        assert folder.parent == root
        assert folder.name.isascii()
        assert len(folder.name) < 120
    long = [folder for folder, variant in zip(folders, variants, strict=True) if len(variant) > 100]
    assert len(set(long)) == len(long)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "9" * 20, "9" * 5000, "", "x", "\u202e8"])
def test_a_number_that_nothing_can_be_set_to_is_refused(value: str) -> None:
    with pytest.raises(
        UsageError, match=r"option 'size' of 'large-batch' can't be .*: (input should be|unable to parse) "
    ):
        resolve(f"cpu-baseline+large-batch:size={value}")
    with pytest.raises(UsageError, match=r"option 'epochs' of 'ema' can't be .*: (input should be|unable to parse) "):
        resolve(f"cpu-baseline+ema:epochs={value}")


@pytest.mark.parametrize("name", all_names())
def test_a_variant_written_out_is_itself(name: str) -> None:
    found = resolve(name)
    if found.device in ("cpu", "cuda"):
        written = "+".join([f"{found.device}-baseline", *(o.text() for o in found.optimizations)])
        assert resolve(written).optimizations == found.optimizations


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (seconds, UsageError),
        (share, UsageError),
        (split_choices, UsageError),
        (chosen_bands, UsageError),
        (read_size, UsageError),
        (read_seed, UsageError),
        (read_range, ValueError),
        (read_schedule, ValueError),
    ],
)
@given(text=st.text(max_size=30) | st.text("0123456789.,:%smhe+-_ #=bandsxiz", max_size=400))
def test_any_text_is_read_or_refused(read: Any, error: type[Exception], text: str) -> None:
    try:
        read(text)
    except error as refused:
        one_sentence(refused)


@given(st.integers(1, 10**6))
def test_durations_and_shares_are_what_they_say(number: int) -> None:
    assert seconds(f"{number}") == seconds(f" {number}s ") == number
    assert seconds(f"{number}m") == 60 * number
    assert seconds(f"{number}h") == 3600 * number
    assert share(f"{number}%") == share(f"{number} %") == number / 100
    assert share(f"{number}") == number
