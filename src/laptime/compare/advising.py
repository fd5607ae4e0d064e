"""Advice in the reports: each finding's numbers in words, predicted beside measured."""

from __future__ import annotations

from collections.abc import Sequence

from laptime.advice.judge import most_worth
from laptime.advice.text import MEASURE as MEASURE_IT
from laptime.advice.text import TOO_MUCH, grouped
from laptime.compare import words
from laptime.compare.model import Comparison
from laptime.records import Advice, Finding, Measured, RuleHistory

TITLE = "Advice"
MEASURE = MEASURE_IT.capitalize()
LEAD = (
    "What to try next, by variant, ranked by the gain that is expected and how sure it is. The range is that of the "
    "step's time with the remedy; where the remedy has been run, what it brought stands beside."
)
SHORT = ("variant", "what", "step expected, ms", "gain", "measured", "command")
SHORT_FINDINGS = 3


def advised(comparison: Comparison) -> list[Advice]:
    """All advice in the order of the table, the fastest variant's first: it is what one goes on from."""
    best = comparison.headline("fastest")
    names = [r.variant for r in comparison.rows if r.variant in comparison.advice]
    names.sort(key=lambda n: best is None or n != best.variant)
    return [comparison.advice[n].model_copy(update={"subject": n}) for n in names]


def verdicts(comparison: Comparison) -> list[tuple[list[str], str]]:
    """The verdict of each variant's advice; variants that share one stand together."""
    found: dict[str, list[str]] = {}
    for advice in advised(comparison):
        if advice.verdict:
            found.setdefault(advice.verdict, []).append(advice.subject)
    return [(subjects, verdict) for verdict, subjects in found.items()]


def withheld(advice: Advice) -> list[tuple[str, str]]:
    """Rules that nothing is advised by, with the reason, which is said once for all that share it."""
    return [(", ".join(ids), reason) for ids, reason in grouped(advice.withheld)]


def says_noise(advice: Advice) -> bool:
    """Whether the verdict has the noise already, since it is why no numbers are given."""
    return advice.verdict.startswith(TOO_MUCH)


def expected(finding: Finding) -> str:
    """28.1–31.0 ms instead of 40.2 ms."""
    span = words.span(*finding.step_ms_expected, words.milliseconds)
    return f"{span} ms instead of {words.milliseconds(finding.step_ms_now)} ms"


def gain(finding: Finding) -> str:
    """The share of the step that should go: 22–30 %."""
    return f"{_share(finding.gain[0])}–{_share(finding.gain[1])} %"


def confidence(finding: Finding) -> str:
    """In per cent, as the gain is."""
    return f"{_share(finding.confidence)} %"


def history(past: RuleHistory) -> str:
    """How the rule has fared: faster in 4 of 5 runs, off by 12 % of the step in the middle."""
    if not past.tried:
        return "not tried yet"
    off = "" if past.error is None else f", off by {_share(past.error)} % of the step in the middle"
    where = " on this machine" if past.here else ""
    last = f" and in {past.last_faster} of the last {past.last}" if past.last else ""
    return f"faster in {past.faster} of {past.tried} runs{last}{where}{off}"


def measured(found: Measured | None) -> str:
    """What a verified remedy brought; empty where it was not run."""
    if found is None:
        return ""
    if found.error or found.gain is None:
        return f"not measured: {found.error.rstrip('.') or 'no reason was given'}"
    slower = found.gain < 0
    text = f"{_share(abs(found.gain))} % {'more' if slower else 'less'}"
    if found.gain_low is not None and found.gain_high is not None:
        low, high = (-found.gain_high, -found.gain_low) if slower else (found.gain_low, found.gain_high)
        text += f" ({_signed(low)} to {_signed(high)} %)"  # signs are those of the word
    if found.step_ms is not None:
        before = "" if found.step_ms_before is None else f" instead of {words.milliseconds(found.step_ms_before)} ms"
        text = f"{words.milliseconds(found.step_ms)} ms{before}, {text}"
    kept = {True: "quality kept", False: "quality lost", None: "quality not judged"}[found.quality_kept]
    return f"{text}, n = {found.n}, {found.quality or kept}"


def worth(finding: Finding) -> float:
    """What a finding should bring, as a share of the step: the measured gain where there is one."""
    measured = finding.measured
    if measured is not None and measured.gain is not None:
        return 0.0 if measured.quality_kept is False else measured.gain
    if measured is not None:
        return 0.0  # its remedy failed, or can't be run here
    return sum(finding.gain) / 2 * finding.confidence


def verdict_of(given: Advice, ranked: Sequence[Finding]) -> str:
    """The headline of advice that was verified: what is worth doing first, then what was and turned out not to be.

    Args:
        given: as it was before; its headline stays where it praises no finding that turned out worth nothing.
        ranked: its findings with what was measured, by their worth.
    """
    first = next((f for f in ranked if f.id in [praised.id for praised in given.findings[:1]]), None)
    if first is None or first.measured is None or worth(first) > 0 or first.what not in given.verdict:
        return given.verdict
    best = ranked[0]
    if worth(best) <= 0:
        opening = "Nothing that was tried is worth doing."
    elif best.measured is None:
        opening = most_worth(best)
    else:
        opening = f"Most worth doing: {best.what} Measured: {measured(best.measured)}."
    gain_found = first.measured.gain
    became = "not measured" if gain_found is None else "quality was lost" if gain_found > 0 else "not faster"
    return f"{opening} Proposed first, but {became}: {first.what}"


def verified(comparison: Comparison) -> list[str]:
    """What became of each finding that was to be verified, predicted beside measured, the fastest variant's first."""
    ran = [(a.subject, f, f.measured) for a in advised(comparison) for f in a.findings if f.measured is not None]
    return [
        f"{finding.variant or finding.id} beside {subject}: predicted {gain(finding)} less, "
        f"{'' if found.gain is None else 'measured '}{measured(found)}."
        for subject, finding, found in ran
    ]


def next_step(comparison: Comparison) -> str:
    """The finding most worth doing on the fastest variant, in one line; without one, the verdict."""
    some = advised(comparison)
    if not some:
        return ""
    best = some[0]
    finding = max(best.findings, key=worth, default=None)
    if finding is None or worth(finding) <= 0:
        return f"Next, for {best.subject}: {best.verdict}" if best.verdict else ""
    text = f"Next, for {best.subject}: {finding.what.rstrip('.')} ({expected(finding)}, {gain(finding)} less)"
    found = measured(finding.measured)
    text += f"; measured: {found}" if found else ""
    typed = _typed(finding)
    return f"{text}: {typed}" if typed else f"{text}."


def _typed(finding: Finding) -> str:
    """The remedy's command; of a change of code that, unless the sentence told it, and the command that measures it."""
    if not finding.measured_by:
        return finding.command
    code = "" if finding.command in finding.what else f"{finding.command}; "
    return f"{code}{MEASURE_IT} {finding.measured_by}"


def short_cells(finding: Finding) -> list[str]:
    """The inner cells of a line in the order of `SHORT`: all but the variant and the command."""
    span = words.span(*finding.step_ms_expected, words.milliseconds)
    return [
        finding.what,
        f"{span} instead of {words.milliseconds(finding.step_ms_now)}",
        gain(finding),
        measured(finding.measured) or words.NONE,
    ]


def _share(value: float) -> str:
    return f"{value * 100:.0f}"


def _signed(value: float) -> str:
    return f"{value * 100:+.0f}".replace("-", "−")
