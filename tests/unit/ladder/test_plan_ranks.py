"""How many ranks a variant takes here, and what is refused or left out before anything starts."""

import pytest
from tests.unit.conftest import make_data_spec

from laptime.catalogue import find_preset, find_workload
from laptime.catalogue.own import with_findings
from laptime.errors import UsageError
from laptime.ladder.plan import make_plan
from laptime.ladder.ranks import check_ranks, ranks_of, with_parallel
from laptime.ladder.request import check_variant, make_request, make_spec
from laptime.launchers import launcher_of
from laptime.records import ProbeRecord
from laptime.spec import OwnSpec
from laptime.variants import resolve

CIFAR = find_workload("cifar")
FULL, QUICK = (find_preset(CIFAR, name) for name in ("full", "quick"))
GOOD = ProbeRecord(gains={"bf16": 1.5})
STRONG, WEAK = ("cpu-ddp-plain", "cpu-ddp-tuned", "cpu-ddp-flat"), ("cpu-ddp-tuned-weak",)
SEVERAL = (*STRONG, *WEAK)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_ranks_take_the_optimized_list(name):
    found, best = resolve(name), resolve("cpu-optimized")
    assert found.device == "cpu-ddp"
    names = [o.name for o in found.optimizations]
    assert {o.name for o in best.optimizations} < set(names)
    assert len(set(names) & {"ddp", "flat-reduce"}) == 1
    assert ranks_of(found, there=6) == 6
    assert ranks_of(best, there=6) == 1


def test_what_a_probe_refused_stays_out_and_more_can_be_added():
    found = resolve("cpu-ddp-flat+large-batch:size=64", ("bf16",))
    chosen = {o.name: o.options for o in found.optimizations}
    assert "bf16" not in chosen
    assert chosen["large-batch"] == {"size": 64}
    swapped = resolve("cpu-ddp-flat+ddp:ranks=2")
    assert [o.name for o in swapped.optimizations if o.name in ("ddp", "flat-reduce")] == ["ddp"]
    assert ranks_of(swapped, there=6) == 2


@pytest.mark.parametrize(
    ("text", "there", "named"),
    [
        ("cpu-ddp-plain+ddp:ranks=3", 2, "3 ranks, but this machine has 2 cores"),
        ("cpu-ddp-plain+ddp:ranks=-1", 2, "'ranks' of 'ddp' can't be '-1'"),
        ("ddp-tuned+ddp:ranks=2", 0, "this machine has 0 GPUs"),
        ("cpu-ddp-plain+large-batch:size=7", 4, "batch of 7"),
    ],
)
def test_what_does_not_fit_is_one_sentence_before_anything_starts(text, there, named):
    with pytest.raises(UsageError, match=named) as error:
        check_ranks(resolve(text), CIFAR, there)
    assert "\n" not in str(error.value)


def test_the_launcher_follows_the_ranks():
    assert launcher_of("auto", "x", 1) == "process"
    assert launcher_of("auto", "x", 2) == "torchrun"
    assert launcher_of("torchrun", "x", 1) == "torchrun"
    for name in ("process", "inline"):
        with pytest.raises(UsageError, match=f"--launcher {name} starts one rank, but x has 2"):
            launcher_of(name, "x", 2)


def test_a_request_refuses_what_its_machine_or_launcher_can_not_hold():
    request = make_request(launcher="process")
    with pytest.raises(UsageError, match="99999 ranks"):
        check_variant(request, resolve("cpu-ddp-plain+ddp:ranks=99999"))
    spec = make_spec(make_request(), resolve("cpu-ddp-plain+ddp:ranks=1"), make_data_spec(), 0)
    assert (spec.ranks, spec.device) == (1, "cpu")


def test_the_first_process_of_a_variant_alone_is_profiled():
    request, variant = make_request(profile_schedule="0, 1, 2, 1"), resolve("cpu-resident")
    specs = [make_spec(request, variant, make_data_spec(), repeat) for repeat in (0, 1)]
    assert [(s.profile, s.profile_schedule) for s in specs] == [("full", "0,1,2,1"), ("none", "0,1,2,1")]
    assert make_spec(make_request(profile="simple"), variant, make_data_spec(), 0).profile == "simple"


def test_the_full_ladder_ends_with_several_ranks_on_the_list_that_was_kept():
    plan = with_parallel(make_plan("cpu", FULL, None, GOOD), FULL, CIFAR, there=2)
    assert plan.parallel == SEVERAL


def test_one_core_leaves_them_out_with_the_reason():
    plan = with_parallel(make_plan("cpu", FULL, None, GOOD), FULL, CIFAR, there=1)
    assert plan.parallel == ()
    assert {left.variant for left in plan.left_out} == set(SEVERAL)
    assert all("1 core" in left.reason for left in plan.left_out)


def test_more_cores_than_the_batch_feeds_leave_them_out_too():
    plan = with_parallel(make_plan("cpu", FULL, None, GOOD), FULL, CIFAR, there=300)
    assert {left.variant for left in plan.left_out if "too small for 300 ranks" in left.reason} == set(STRONG)
    assert plan.parallel == WEAK  # each of whose ranks has a whole batch


def test_an_exchange_that_is_not_for_a_training_leaves_them_out_with_the_reason_before_anything_starts():
    """A contrastive loss, say; each had been started and had failed."""
    own = OwnSpec(attribute="x", name="x", batch_size=32, learning_rate=1e-3, quality="loss", refused={"ddp": "pairs"})
    entry = with_findings(CIFAR, make_data_spec(train=1000, test=500).model_copy(update={"own": own}))
    plan = with_parallel(make_plan("cpu", FULL, None, GOOD), FULL, entry, there=2)
    assert plan.parallel == ("cpu-ddp-flat",)
    assert {left.variant for left in plan.left_out if left.reason == "pairs"} == {*SEVERAL} - {"cpu-ddp-flat"}


@pytest.mark.parametrize("name", ["cpu-ddp-tuned-weak", "ddp-tuned-weak", "ddp-graphed-weak"])
def test_a_weak_variant_is_its_strong_one_with_a_batch_for_each_rank(name):
    weak, strong = resolve(name), resolve(name.removesuffix("-weak"))
    assert [o.name for o in weak.optimizations] == [o.name for o in strong.optimizations]
    options = [o.options for o in weak.optimizations if o.name in ("ddp", "flat-reduce")]
    (before,) = [o.options for o in strong.optimizations if o.name in ("ddp", "flat-reduce")]
    assert options == [{**before, "scaling": "weak"}]


def test_a_quick_ladder_and_named_variants_get_no_more():
    assert with_parallel(make_plan("cpu", QUICK, None, GOOD), QUICK, CIFAR, there=8).parallel == ()
    named = make_plan("cpu", FULL, ["cpu-ddp-plain"], GOOD)
    assert with_parallel(named, FULL, CIFAR, there=8) == named
    assert [v.name for v in named.fixed] == ["cpu-baseline", "cpu-ddp-plain"]
    with pytest.raises(UsageError, match=r"--device cuda|no NVIDIA driver .*ddp-plain"):
        make_plan("cpu", FULL, ["ddp-plain"], GOOD)
