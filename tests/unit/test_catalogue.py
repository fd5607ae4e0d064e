"""The catalogue and the implementations agree; names are parsed or refused."""

import importlib
import pkgutil
import re

import pytest

import laptime.optimizations
import laptime.workloads
from laptime.catalogue import (
    LADDERS,
    OPTIMIZATIONS,
    STAGES,
    STATISTICAL,
    WORKLOADS,
    find_optimization,
    find_workload,
    in_stage_order,
    options_of,
    parse_optimization,
    rung_spec,
)
from laptime.errors import UsageError
from laptime.spec import OptimizationSpec
from laptime.variants import all_names, resolve, with_options


def test_every_optimization_has_one_implementation():
    listed = [name for name, _ in laptime.optimizations.OPTIMIZATIONS]
    assert sorted(listed) == sorted(o.name for o in OPTIMIZATIONS)
    assert len(set(listed)) == len(listed)


def test_every_transform_that_a_module_defines_is_listed():
    listed = {function for _, function in laptime.optimizations.OPTIMIZATIONS}
    for module in pkgutil.iter_modules(laptime.optimizations.__path__):
        members = vars(importlib.import_module(f"laptime.optimizations.{module.name}"))
        for name, member in members.items():
            hints = getattr(member, "__annotations__", {})
            is_transform = set(hints) == {"recipe", "options", "return"}
            if is_transform and member.__module__.endswith(module.name):
                assert member in listed, f"{name} is not in OPTIMIZATIONS"


def test_every_workload_has_one_implementation():
    assert [w.name for w in WORKLOADS] == [w.name for w in laptime.workloads.WORKLOADS]


def test_ladders_and_stages_name_what_exists():
    stages = [s for s, _ in STAGES]
    for rungs in LADDERS.values():
        assert len(set(rungs)) == len(rungs)
        for rung in rungs:
            assert find_optimization(rung_spec(rung).name).stage in stages
    for workload in WORKLOADS:
        for preset in workload.presets:
            assert set(preset.rungs or ()) <= {r for rungs in LADDERS.values() for r in rungs}


def test_stage_order_does_not_depend_on_the_order_given():
    names = [OptimizationSpec(name=o.name) for o in OPTIMIZATIONS]
    assert in_stage_order(tuple(names)) == in_stage_order(tuple(reversed(names)))


@pytest.mark.parametrize("name", all_names())
def test_every_named_variant_resolves(name):
    variant = resolve(name)
    assert variant.name == name
    assert (variant.optimizations == ()) == name.endswith("baseline")


def test_a_variant_takes_more_optimizations_and_options():
    variant = resolve("cpu-resident+large-batch:size=64:schedule=constant")
    chosen = {o.name: options_of(o) for o in variant.optimizations}
    assert chosen["large-batch"] == {"size": 64, "max_lr": 0.0, "schedule": "constant"}
    changed = with_options(variant, ("large-batch.size=128",))
    assert {o.name: o.options for o in changed.optimizations}["large-batch"]["size"] == 128


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("large-bach", "large-batch"),
        ("large-batch:sise=3", "size"),
        ("large-batch:size=many", "'many': input should be a valid integer"),
        ("large-batch:size", "option=value"),
        ("bf16:level=2", "no options"),
        ("large-batch:size=-3", "'-3': input should be greater than or equal to 0"),
        ("flip:mode=both", "'mode' of 'flip' can't be 'both': input should be 'alternating' or 'random'"),
        ("compile:mode=max-autotune", "'default' or 'max-autotune-no-cudagraphs'"),
        ("compile-graphed:layout=nhcw", "'keep' or 'channels-last'"),
        ("flat-reduce:reduce=fp8", "'fp32' or 'bf16'"),
        ("ddp:bucket_mb=-1", "greater than or equal to 0"),
        ("label-smoothing:amount=1", "less than 1"),
        ("ema:epochs=0", "greater than 0"),
        ("fixed-shapes:aspect=9", "less than or equal to 5"),
        ("workers:count=-2", "greater than or equal to -1"),
    ],
)
def test_a_wrong_optimization_is_refused_with_what_would_be_right(text, named):
    with pytest.raises(UsageError, match=named):
        parse_optimization(text)


def test_a_wrong_value_is_refused_where_a_spec_holds_it_too():
    with pytest.raises(UsageError, match="'alternating' or 'random'"):
        options_of(OptimizationSpec(name="flip", options={"mode": "both"}))


def test_all_numbers_have_limits_and_all_defaults_are_within_them():
    for entry in OPTIMIZATIONS:
        assert (
            options_of(OptimizationSpec(name=entry.name, options={o.name: o.default for o in entry.options}))
            or not entry.options
        )
        for option in entry.options:
            assert option.kind or isinstance(option.default, str | bool), f"{entry.name}:{option.name}"


def test_what_must_earn_its_place_comes_by_its_own_name_alone():
    optimized = {o.name for o in resolve("cpu-optimized").optimizations}
    assert not optimized & set(STATISTICAL)
    chosen = {o.name for o in resolve("cpu-ema").optimizations}
    assert chosen == optimized | {"ema"}
    assert all(find_optimization(n).earned for n in STATISTICAL)


def test_setting_an_option_of_an_absent_optimization_is_refused():
    with pytest.raises(UsageError, match="cpu-resident\\+large-batch"):
        with_options(resolve("cpu-resident"), ("large-batch.size=128",))
    with pytest.raises(UsageError, match="form"):
        with_options(resolve("cpu-optimized"), ("size=128",))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cifr", "unknown workload 'cifr': did you mean cifar?"),
        ("s3://bucket/data", "unknown workload 's3://bucket/data': known: cifar, detection, eurosat."),
        ("Untitled.ipynb", "with %%writefile my_train.py, and give my_train.py:workload."),
        ("nb/Train.ipynb:Net", "'nb/Train.ipynb' is a notebook"),
        ("nb/Train.ipynb:Net", "and give my_train.py:Net."),
        ("package.train:workload", "give the path of your training, package/train.py:workload."),
        ("./a/train:workload", "give the path of your training, ./a/train.py:workload."),
        ("train:", "give the path of your training, train.py:NAME."),
    ],
)
def test_a_name_that_is_no_workload_says_what_to_write(name, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        find_workload(name)
