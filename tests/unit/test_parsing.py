"""JSON from elsewhere, and what is taken out of every error: control characters and secrets."""

from __future__ import annotations

import contextlib
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laptime.errors import DataError, LaptimeError, UsageError, shorten, without_secrets
from laptime.parsing import parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_what_json_can_say_is_read(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text) == parse_json(text.encode()) == parse_json(b"\xef\xbb\xbf" + text.encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False)) == value


@given(st.binary(max_size=64))
def test_anything_else_is_a_value_error(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_json(body)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "too deep"),
        ('{"a":' * 100_000, "too deep"),
        ('"\\ud800"', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
        ("1" * 19, "too large"),
        ("-" + "1" * 19, "too large"),
        ("1" * 5000, "too large"),
    ],
)
def test_what_json_lets_through_and_nobody_can_use(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_json(text)


def test_numbers_that_are_none_are_read_as_they_are_written() -> None:
    assert math.isnan(parse_json("NaN"))
    assert parse_json("[Infinity, 1e999, -123456789012345678]") == [math.inf, math.inf, -123456789012345678]
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


SECRETS = (
    "http://user:hunter2@host/x",
    "http://hunter2@host",
    "postgresql+psycopg://me:hun@hunter2@db/x",
    "https://b.s3.amazonaws.com/k.zip?X-Amz-Credential=hunter2&X-Amz-Signature=hunter2",
    "see 'https://h/x?token=hunter2', and https://a:hunter2@b",
    "git+ssh://hunter2@github.com/x.git",
    "can't reach 'postgresql://u:pa/hunter2@h/db', nor http://h:80/x",
    "https://u:p?a#hunter2@h/x.zip",
)


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_of_addresses_are_in_no_error(text: str) -> None:
    for shown in (without_secrets(text), shorten(text), str(DataError(f"{text} is wrong: give another."))):
        assert "hunter2" not in shown
        assert "://" in shown


def test_values_of_secret_variables_are_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "MLFLOW_TRACKING_PASSWORD",
        "GITHUB_TOKEN",
        "db_password",
    ):
        monkeypatch.setenv(name, f"{name}-hunter2")
        assert "hunter2" not in str(UsageError(f"Forbidden: {name}-hunter2 was refused."))
        monkeypatch.delenv(name)
    monkeypatch.setenv("API_TOKEN", "")
    monkeypatch.setenv("LAPTIME_HOME", "/plain/path")
    assert str(DataError("/plain/path is full.")) == "/plain/path is full."


@given(st.text())
def test_an_error_is_one_printable_line(text: str) -> None:
    assert str(LaptimeError(text)).isprintable()
    assert shorten(text).isprintable()
    assert len(shorten(text)) <= 120


def test_an_error_survives_the_way_from_another_process() -> None:
    assert str(pickle.loads(pickle.dumps(DataError("a\nb")))) == "a b"
