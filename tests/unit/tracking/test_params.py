"""The params of runs in MLflow."""

from __future__ import annotations

import pytest
from tracking_samples import a_ladder, a_record

from laptime.records import Rung
from laptime.tracking.params import variant_params


@pytest.mark.parametrize(
    ("there", "limit", "batch"), [(0, None, 512), (400, None, 400), (400, 300, 300), (2000, 2000, 512)]
)
def test_a_large_batch_is_told_no_larger_than_all_samples(there: int, limit: int | None, batch: int) -> None:
    record = a_record("cpu-a")
    assert record.spec is not None
    data = record.spec.data.model_copy(update={"train_count": there})
    spec = record.spec.model_copy(update={"data": data, "limit_train": limit})
    told = variant_params(a_ladder(), Rung(variant="cpu-a"), record.model_copy(update={"spec": spec}))
    assert told["batch_size"] == batch
