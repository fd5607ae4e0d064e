"""Which proposals are worth saying, how sure they are, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Abstain, Limit, MissingSignalError, Note, Outcome, Proposal, Rule
from laptime.advice.remedy import Remedy, measured_by, remedy_of
from laptime.advice.signals import Signals
from laptime.records.advice import Advice, Finding, RuleHistory, Withheld

LEAST_GAIN = 0.03
# A step whose scatter nobody measured may scatter as much as the noisiest that is judged.
_UNKNOWN_NOISE = 0.05
# As many past proposals as a rule's own confidence is worth.
_PRIOR = 4.0
# No past makes a range more than so much smaller or larger.
_SCALES = (0.5, 2.0)
# Something is always left of a step.
_MOST_GAIN = 0.99
_NOISY = "the machine was too noisy for numbers"
# With operations taken away the step at the ceilings falls too: remedies, and findings without one.
_FEWER_OPERATIONS = (
    *("dead-taps", "hot-operator/slices", "hot-operator/packed", "written-slices", "written-gelu"),
    *("attention", "dense-embeddings", "weight-penalty", "written-norms", "written-cross-entropy"),
)


@dataclass
class Verdicts:
    """What the rules said, sorted."""

    proposals: list[Proposal] = field(default_factory=list)
    notes: list[tuple[str, Note]] = field(default_factory=list)
    withheld: list[Withheld] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)


def ask(rules: tuple[tuple[str, Rule], ...], s: Signals) -> Verdicts:
    """Asks every rule; a missing signal makes one abstain, with the signal's name."""
    found = Verdicts()
    for name, rule in rules:
        try:
            outcome = rule(s)
        except MissingSignalError as missing:
            outcome = Abstain(f"not known: {missing}")
        _sort(found, name, outcome)
    return found


def _sort(found: Verdicts, name: str, outcome: Outcome) -> None:
    if isinstance(outcome, Proposal):
        found.proposals.append(outcome)
    elif isinstance(outcome, Note):
        found.notes.append((name, outcome))
    elif isinstance(outcome, Limit):
        found.limits.append(outcome)
    elif isinstance(outcome, Abstain):
        found.withheld.append(Withheld(id=name, reason=outcome.reason))


def judge(found: Verdicts, s: Signals, history: Mapping[str, RuleHistory]) -> Advice:
    """Makes advice of what the rules said: withholds, ranks, and puts the headline above."""
    verdict, left = _strictest(found.limits)
    told: list[tuple[str, Finding]] = []
    fewer = {proposal.id for proposal in found.proposals if _takes_operations(proposal)}
    noisy = left <= 0
    withheld = [*found.withheld, *(Withheld(id=n, reason=_NOISY) for n, note in found.notes if note.timed and noisy)]
    for proposal in found.proposals:
        remedy = remedy_of(proposal.remedy, s) if proposal.remedy and not s.foreign else Remedy(proposal.klass)
        finding = _finding(proposal, remedy, s, history)
        roof = left if left <= 0 or _under_the_roof(proposal) else 1.0
        reason = remedy.refusal or _too_little(finding, s, roof)
        if reason:
            withheld.append(Withheld(id=finding.id, reason=reason))
        else:
            told.append((finding.variant or proposal.remedy or finding.id, _capped(finding, roof)))
    findings = _merged(told)
    findings.sort(key=lambda f: -sum(f.gain) / 2 * f.confidence)
    if left > 0 and any(finding.id in fewer for finding in findings):
        verdict = ""  # the step at the ceilings counts those operations, too, so more is left than it says
    return Advice(
        subject=s.subject,
        verdict=verdict or _headline(findings, s),
        step_ms=s.step_ms,
        noise=s.noise,
        findings=tuple(findings),
        withheld=tuple(withheld),
        notices=(*(note.text for _, note in found.notes if not (note.timed and noisy)), *_notices(s)),
    )


def confidence(prior: float, history: RuleHistory) -> float:
    """The rule's own confidence, corrected by how often its proposals were faster.

    The mean of a Beta distribution: `_PRIOR` imagined proposals at the rule's own rate, and the real ones on top
    (Gelman et al., Bayesian Data Analysis, 2.4). One success or failure moves it a little, the last twenty decide.
    """
    faster, tried = (history.last_faster, history.last) if history.last else (history.faster, history.tried)
    return (_PRIOR * prior + faster) / (_PRIOR + tried)


def scale(history: RuleHistory) -> float:
    """What a rule's range is multiplied with: what its past proposals brought of what it said, shrunk towards 1.

    On a logarithmic scale, as a mean with `_PRIOR` imagined proposals that brought just what was said.
    """
    if history.ratio is None:
        return 1.0
    least, most = _SCALES
    shrunk: float = min(max(history.ratio, least), most) ** (history.compared / (history.compared + _PRIOR))
    return shrunk


def _learnt(history: RuleHistory) -> tuple[str, ...]:
    """One sentence where the past scales the range."""
    factor = f"{scale(history):.2f}"
    if history.ratio is None or factor == "1.00":
        return ()
    last = f"the last {history.compared} proposals" if history.compared > 1 else "the last proposal"
    where = " on this machine" if history.here else ""
    brought = f"{last} of this rule{where} brought {history.ratio:.1f} times what it said"
    return (f"{brought}; the range is scaled by {factor}",)


def _finding(p: Proposal, remedy: Remedy, s: Signals, history: Mapping[str, RuleHistory]) -> Finding:
    now = p.base_ms if p.base_ms is not None else (s.step_ms or 0.0)
    past = history.get(p.id.partition("/")[0], RuleHistory())
    own_low, own_high = (min(max(g, 0.0), now) / now if now > 0 else 0.0 for g in p.gain_ms)
    low, high = (min(scale(past) * share, _MOST_GAIN) for share in (own_low, own_high))
    return Finding(
        id=p.id,
        what=p.what,
        evidence=(*p.evidence, *_learnt(past)),
        lines=p.lines,
        step_ms_now=now,
        step_ms_expected=(now * (1 - high), now * (1 - low)),
        gain=(low, high),
        own_gain=(own_low, own_high),
        confidence=confidence(p.confidence, past),
        klass=remedy.klass,
        variant=remedy.variant,
        command=remedy.command or p.code,
        measured_by="" if remedy.variant else measured_by(p.id, s),
        history=past,
    )


def _under_the_roof(p: Proposal) -> bool:
    """Whether the ceilings of the step bound it: not what stands beside the steps, nor what leaves operations out."""
    return p.base_ms is None and not _takes_operations(p)


def _takes_operations(p: Proposal) -> bool:
    what = p.remedy.partition(":")[0] or p.id
    return any(what == name or what.startswith(f"{name}/") for name in _FEWER_OPERATIONS)


def _too_little(finding: Finding, s: Signals, left: float) -> str:
    """Why a finding is withheld; empty where it is not."""
    if left <= 0:
        return _NOISY
    low, high = finding.gain
    if low < LEAST_GAIN:
        span = f"{percent(low, 1)} (up to {percent(high, 1)})"
        return f"its gain may be as small as {span}: under {percent(LEAST_GAIN)} it is not worth it"
    noise = _UNKNOWN_NOISE if s.noise is None else s.noise
    if low < 2 * noise:
        return f"its gain may be as small as {percent(low, 1)}, less than twice the noise of {percent(noise, 1)}"
    if finding.klass in ("exact", "") and low > left:
        return f"it promises more than the {percent(left)} that the machine's ceilings leave"
    return ""


def _capped(finding: Finding, left: float) -> Finding:
    """An exact remedy can't bring more than what the ceilings leave."""
    if finding.klass not in ("exact", "") or finding.gain[1] <= left:
        return finding
    low = finding.gain[0]
    expected = (finding.step_ms_now * (1 - left), finding.step_ms_expected[1])
    return finding.model_copy(update={"gain": (low, left), "step_ms_expected": expected})


def _merged(findings: list[tuple[str, Finding]]) -> list[Finding]:
    """One finding for a remedy: a later rule with the same one adds its evidence to the first one's."""
    found: dict[str, Finding] = {}
    for remedy, finding in findings:
        first = found.setdefault(remedy, finding)
        if first is not finding:
            more = (*first.evidence, *(f"{finding.id}: {text}" for text in finding.evidence))
            found[remedy] = first.model_copy(update={"evidence": more})
    return list(found.values())


def _strictest(limits: list[Limit]) -> tuple[str, float]:
    first = min(limits, key=lambda limit: limit.left, default=Limit("", 1.0))
    return first.verdict, first.left


def _headline(findings: list[Finding], s: Signals) -> str:
    if s.step_ms is None:
        return "Nothing to advise on: no step was timed."
    if not findings and s.foreign and s.precision is None:
        return (
            "Nothing worth proposing by what this trace tells: it has no shapes, without which many rules can't judge. "
            "Record it with record_shapes=True."
        )
    if not findings:
        return (
            "Nothing worth proposing: no rule expects a gain above the noise. What could not be judged is listed under "
            "Withheld."
        )
    return most_worth(findings[0])


def most_worth(best: Finding) -> str:
    """The headline that a finding makes: what to do, and the step that is expected of it."""
    low, high = best.step_ms_expected
    return (
        f"Most worth doing: {best.what} Expected: {ms(low)} to {ms(high)} ms a step instead of {ms(best.step_ms_now)} "
        f"({percent(best.gain[0])} to {percent(best.gain[1])} less)."
    )


def _notices(s: Signals) -> list[str]:
    told = []
    if s.left_out_ms is not None:
        told.append(
            f"A recorded step of {s.left_out_ms:,.0f} ms is left out, since it took more than three times as long as "
            "any other: it compiled, evaluated, saved or started workers."
        )
    if s.noise is None and s.step_ms is not None:
        told.append(f"How much steps scatter was not recorded; {percent(_UNKNOWN_NOISE)} is assumed.")
    return told
