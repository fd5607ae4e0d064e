"""The params of runs in MLflow."""

from __future__ import annotations

import pytest
from tests.unit.conftest import make_data, make_data_spec, make_spec
from tracking_samples import a_ladder, a_record

from laptime.engine.build import make_recipe
from laptime.records import Rung
from laptime.spec import OptimizationSpec
from laptime.tracking.params import variant_params
from laptime.world import World


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


@pytest.mark.parametrize(
    ("baseline", "options", "scaling", "batch"),
    [
        (600, {}, "strong", 600),  # no smaller than the baseline's, where no size is given
        (600, {"size": 64}, "strong", 64),
        (600, {}, "weak", 1200),
        (32, {}, "weak", 1024),
        (600, None, "strong", 600),
        (600, None, "weak", 1200),
        (5000, None, "strong", 1300),  # all samples
    ],
)
def test_the_batch_is_that_of_all_ranks_as_it_is_trained_with(
    baseline: int, options: dict[str, int] | None, scaling: str, batch: int
) -> None:
    exchange = OptimizationSpec(name="ddp", options={"scaling": scaling})
    larger = () if options is None else (OptimizationSpec(name="large-batch", options=options),)
    data = make_data_spec(train=1300)
    spec = make_spec(data=data, batch_size=baseline, ranks=2, optimizations=(exchange, *larger))
    told = variant_params(a_ladder(), Rung(variant="cpu-a"), a_record("cpu-a").model_copy(update={"spec": spec}))
    recipe = make_recipe(spec, make_data(train=1300, size=4), spec.optimizations, World(size=2))
    assert (told["batch_size"], recipe.batch_size) == (batch, batch)


@pytest.mark.parametrize(("options", "batch"), [({}, 4), ({"batch": 8}, 8)])
def test_images_of_one_size_are_told_by_as_many_as_a_step_takes(options: dict[str, int], batch: int) -> None:
    spec = make_spec(
        workload="detection", batch_size=1, optimizations=(OptimizationSpec(name="fixed-shapes", options=options),)
    )
    told = variant_params(a_ladder(), Rung(variant="cpu-a"), a_record("cpu-a").model_copy(update={"spec": spec}))
    assert told["batch_size"] == batch
