"""A user's file of a name of its own, whose module is forgotten after the test."""

import itertools
import sys

import pytest

_NUMBER = itertools.count()


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / f"training_{next(_NUMBER)}.py"
    yield path
    sys.modules.pop(path.stem, None)
