"""A step in pieces keeps the values at all cuts: where these have no room, the rule without pieces stands."""

import pytest
import torch
from tests.unit.engine.test_pieces import asked, deep

from laptime.engine.check import check_one_step
from laptime.engine.pieces import Cuts

__all__ = ["deep"]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError(), ValueError("a fault")])
def test_where_the_values_at_the_cuts_have_no_room_the_wide_comparison_decides(deep, monkeypatch, error):
    def full(*_):
        raise error

    monkeypatch.setattr(Cuts, "compare", full)
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="a fault"):
            check_one_step(asked("bf16"), deep, 8)
        return
    found = check_one_step(asked("bf16"), deep, 8)
    assert found.pieces is None
    assert not found.passed, "by the wide one alone nobody knows"
