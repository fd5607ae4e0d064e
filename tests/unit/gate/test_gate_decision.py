from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from laptime.errors import UsageError
from laptime.gate import Policy, decide
from laptime.gate.decision import Spread, look_at, spread_of
from laptime.gate.noise import known_noise, pairs_needed
from laptime.gate.policy import LOOKS, make_policy
from laptime.gate.student import quantile, upper_tail
from laptime.gate.words import progress

WORKED = (0.128, 0.097, 0.141, 0.109)
ratios = st.floats(-0.5, 0.5, allow_nan=False)
noises = st.one_of(st.none(), st.floats(0.003, 0.15))
# Middles of pairs for which one look says so, with a margin from where two verdicts meet.
CENTRES = {"regressed": (0.07, 0.3), "improved": (-0.3, -0.07), "not_regressed": (-0.03, 0.03)}
changes = st.builds(
    lambda centre, scatter, units: [centre + scatter * unit for unit in units],
    st.floats(-0.2, 0.2),
    st.floats(0.0, 0.1),
    st.lists(st.floats(-1, 1), min_size=4, max_size=12),
)
MIRROR = {"regressed": "improved", "improved": "regressed"}


def test_the_worked_example():
    verdict = decide(WORKED, 0.031)
    assert verdict.kind == "regressed"
    assert [look.n for look in verdict.looks] == [4]
    assert verdict.state == verdict.looks[0]
    found = verdict.looks[0]
    assert (round(found.ratio, 3), round(found.low, 3), round(found.high, 3)) == (1.126, 1.046, 1.213)
    assert (found.degrees, found.alpha, found.beta) == (7, 0.01 * 4 / 94, 0.05 * 4 / 94)
    assert (verdict.next_look, verdict.expected, verdict.noise) == (None, 0, 0.031)


def test_without_known_noise_the_same_pairs_stand_on_their_own_variance():
    found = decide(WORKED).state
    assert found is not None
    assert found.degrees == 3
    assert found.sd == pytest.approx(math.sqrt(3.82917e-4), rel=1e-4)


@pytest.mark.parametrize("degrees", [1, 3, 7, 26, 400])
@pytest.mark.parametrize("tail", [0.3, 0.05, 1e-3, 4.2e-5])
def test_the_quantile_is_scipys(degrees, tail):
    assert quantile(tail, degrees) == pytest.approx(-float(stdtrit(degrees, tail)), rel=1e-9)
    assert upper_tail(0.0, degrees) == 0.5


@settings(max_examples=150)
@given(st.lists(ratios, min_size=2, max_size=24), noises)
def test_swapping_base_and_head_exchanges_regressed_and_improved(d, noise):
    policy = Policy()
    kind = look_at(spread_of(d, noise), policy, 0.1).kind
    swapped = look_at(spread_of([-x for x in d], noise), policy, 0.1).kind
    assert (kind == "regressed") == (swapped == "improved")
    assert (kind == "improved") == (swapped == "regressed")
    # Over several looks the swapped gate may have passed at an earlier one, but never says the same of both.
    whole, mirrored = decide(d, noise), decide([-x for x in d], noise)
    if whole.kind in MIRROR:
        assert mirrored.kind in (MIRROR[whole.kind], "not_regressed")


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=4, max_size=12), st.floats(1e-3, 1e3))
def test_scaling_all_times_changes_nothing(times, factor):
    plain = decide([math.log(head) - math.log(base) for base, head in times], 0.05)
    scaled = decide([math.log(head * factor) - math.log(base * factor) for base, head in times], 0.05)
    assert plain.kind == scaled.kind
    assert plain.state is not None
    assert scaled.state is not None
    assert scaled.state.ratio == pytest.approx(plain.state.ratio, rel=1e-9)


@pytest.mark.parametrize("kind", CENTRES)
@settings(max_examples=100)
@given(st.data())
def test_pairs_equal_to_the_mean_never_reverse_what_one_look_says(kind, data):
    centre, scatter = data.draw(st.floats(*CENTRES[kind])), data.draw(st.floats(0.0, 0.015))
    d = [centre + scatter * data.draw(st.floats(-1, 1)) for _ in range(data.draw(st.integers(4, 12)))]
    noise, policy = data.draw(noises), Policy()
    before = spread_of(d, noise)
    after = spread_of([*d, *[before.mean] * data.draw(st.integers(1, 12))], noise)
    assume(look_at(before, policy, 0.3).kind == kind)
    # Known noise draws outliers in towards the median, which these pairs may move, and the mean with it.
    assume(abs(after.mean - before.mean) < 1e-12)
    assert look_at(after, policy, 0.3).kind == kind
    assert after.reach(0.01) <= before.reach(0.01) + 1e-12


@settings(max_examples=150)
@given(changes, noises, st.lists(ratios, min_size=1, max_size=20))
def test_no_pair_after_the_deciding_look_changes_the_verdict(d, noise, more):
    verdict = decide(d, noise)
    assume(verdict.decided)
    longer = decide([*d, *more], noise)
    assert (longer.kind, longer.state, longer.looks) == (verdict.kind, verdict.state, verdict.looks)


@settings(max_examples=150)
@given(changes, noises, st.integers(1, 12))
def test_pairs_equal_to_the_mean_never_make_slower_of_faster(d, noise, more):
    before = spread_of(d, noise)
    kinds = [look_at(s, Policy(), 0.3).kind for s in (before, spread_of([*d, *[before.mean] * more], noise))]
    assert set(kinds) != {"regressed", "improved"}


@pytest.mark.parametrize("n", range(0, 30))
def test_verdicts_fall_only_at_planned_counts(n):
    # A tiny scatter decides at the first look; nothing may be decided before it.
    clear = decide([0.2 + 0.001 * (i % 2) for i in range(n)])
    assert clear.decided == (n >= 4)
    open_ = decide([0.3 * (-1) ** i for i in range(n)])
    assert tuple(look.n for look in open_.looks) == tuple(k for k in LOOKS if k <= n)
    assert open_.next_look == next((k for k in LOOKS if k > n), None)
    assert open_.kind == "inconclusive"


def test_a_verdict_stays_that_of_the_last_completed_look():
    noisy = [0.5, -0.5] * 3 + [0.5]
    verdict = decide(noisy)
    assert verdict.kind == "inconclusive"
    assert [look.n for look in verdict.looks] == [4]
    assert verdict.alpha_spent == pytest.approx(0.01 * 4 / 94)


def test_all_that_is_spent_is_what_is_promised():
    verdict = decide([0.3, -0.3] * 12)
    assert verdict.alpha_spent == pytest.approx(0.01)
    assert verdict.beta_spent == pytest.approx(0.05)
    assert verdict.expected is not None
    assert verdict.expected > 24


def test_pairs_still_expected_come_true():
    verdict = decide([0.10, 0.00, 0.09, 0.01], 0.05)
    assert not verdict.decided
    assert verdict.state is not None
    assert verdict.expected is not None
    more = [verdict.state.mean + verdict.state.sd * (-1) ** i for i in range(verdict.expected)]
    assert decide([0.10, 0.00, 0.09, 0.01, *more], 0.05).decided


@pytest.mark.parametrize("scatter", [0.05, 0.12, 0.3, 1.0])
@pytest.mark.parametrize("pairs", [4, 24, 30])
def test_pairs_still_expected_are_the_fewest_and_cost_few_quantiles(scatter, pairs):
    quantile.cache_clear()
    verdict = decide([0.06 + scatter * (-1) ** i for i in range(pairs)])
    assert quantile.cache_info().misses <= 50  # one costs about a millisecond, and a decision is promised in 50
    state, counts = verdict.state, [n for n in (*LOOKS, *range(26, 2000, 2)) if n > pairs]
    assert state is not None

    def kind(n: int) -> str:
        share = Policy().share(min(n, 24))
        return look_at(Spread(n, state.mean, state.sd**2, n - 1), Policy(), share).kind

    if verdict.expected is None:
        assert kind(counts[-1]) == "inconclusive"
    elif not verdict.decided:
        place = counts.index(pairs + verdict.expected)
        assert kind(counts[place]) != "inconclusive"
        assert [kind(n) for n in counts[max(0, place - 3) : place]] == ["inconclusive"] * min(3, place)


def test_one_spike_does_not_decide_when_the_noise_is_known():
    quiet = [0.001, -0.002, 0.9, 0.0, 0.002, -0.001, 0.001, 0.0]
    assert decide(quiet, 0.01).kind == "not_regressed"


def test_equal_times_pass():
    assert decide([0.0] * 4).kind == "not_regressed"
    assert decide([0.2] * 4).kind == "regressed"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(UsageError, match="pair 2"):
        decide([0.0, bad])
    with pytest.raises(UsageError, match="noise"):
        decide([0.0], bad)
    with pytest.raises(UsageError, match="noise"):
        decide([0.0], 0.0)


def test_policies():
    assert make_policy(0.1, 24) == Policy()
    assert make_policy(0.1, 18).looks == (4, 8, 10, 12, 16, 18)
    assert make_policy(0.1, 5).looks == (4,)
    assert make_policy(0.1, 33).looks == (*LOOKS, 28, 32)
    assert sum(map(Policy().share, LOOKS)) == pytest.approx(1)
    with pytest.raises(UsageError, match="max-pairs 3"):
        make_policy(0.1, 3)
    for wrong in ({"max_slowdown": 0.0}, {"alpha": 0.9}, {"looks": (4, 7)}, {"looks": ()}, {"looks": (8, 4)}):
        with pytest.raises(UsageError):
            Policy(**wrong)


def test_noise_from_earlier_pairs():
    pairs = [0.02 * (-1) ** i for i in range(20)]
    assert known_noise(pairs) == pytest.approx(1.4826 * 0.02)
    assert known_noise(pairs[:19]) is None
    assert known_noise([0.0] * 20) is None


def test_pairs_needed_follow_the_noise():
    # ((2.33 + 1.64) sd / 0.0953)^2, times 2 and 4, in even counts.
    assert pairs_needed(0.05, Policy()) == (10, 18)
    assert pairs_needed(0.001, Policy()) == (4, 4)
    low, high = pairs_needed(0.14, Policy())
    assert low > 24
    assert high == pytest.approx(2 * low, abs=2)


def test_the_last_look_is_told_as_that():
    scattered = [0.2, -0.2, 0.1, -0.1]
    assert progress(decide(scattered, None, make_policy(0.1, 8))).endswith("expected, next look at 8")
    assert progress(decide(scattered, None, make_policy(0.1, 4))).endswith("so this was the last look")


def test_deciding_imports_neither_torch_nor_scipy():
    script = (
        "import sys; from laptime.gate import decide; decide([.1, .2, .1, .2], .03);"
        "print([m for m in ('torch', 'scipy', 'numpy', 'mlflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
