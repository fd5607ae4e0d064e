import importlib
import sys

import pytest

from laptime.tracking.logged import without_lightning


def test_lightning_can_not_be_imported_meanwhile_and_can_be_afterwards(monkeypatch):
    monkeypatch.delitem(sys.modules, "pytorch_lightning", raising=False)
    with without_lightning(), pytest.raises(ImportError):
        importlib.import_module("pytorch_lightning")
    assert "pytorch_lightning" not in sys.modules


def test_one_that_is_imported_stays(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_lightning", sys)
    with without_lightning():
        assert importlib.import_module("pytorch_lightning") is sys
    assert sys.modules["pytorch_lightning"] is sys
