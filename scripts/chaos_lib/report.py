"""What happened, as lines and as a table."""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Happened:
    """One fault and what came of it.

    Attributes:
        at_s: seconds from the beginning.
        gone_s: seconds until the processes that it was to end were gone; None where none were.
        broken: promises that were broken in its job, as sentences.
    """

    at_s: float
    job: str
    fault: str
    what: str
    gone_s: float | None = None
    broken: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The fault on one line."""
        result = "; ".join(self.broken) if self.broken else "ok"
        gone = f" (gone after {self.gone_s:.1f} s)" if self.gone_s is not None else ""
        return f"{self.at_s:7.1f} s  {self.job:<11} {self.fault:<17} {self.what}{gone}: {result}"


def table(happened: list[Happened], seconds: float, seed: int, without: list[str]) -> str:
    """The table of faults by kind, in Markdown."""
    lines = [
        f"{len(happened)} faults in {seconds / 60:.1f} minutes, seed {seed}, Python {platform.python_version()}.",
        "",
        "| fault | jobs | n | promises kept | longest until gone, s |",
        "|---|---|---|---|---|",
    ]
    for fault in sorted({h.fault for h in happened}):
        mine = [h for h in happened if h.fault == fault]
        jobs = ", ".join(f"{job} {n}" for job, n in sorted(Counter(h.job.partition(" ")[0] for h in mine).items()))
        waits = [h.gone_s for h in mine if h.gone_s is not None]
        longest = f"{max(waits):.1f}" if waits else "–"
        kept = sum(not h.broken for h in mine)
        lines.append(f"| {fault} | {jobs} | {len(mine)} | {kept} | {longest} |")
    lines += ["", *(f"Left out: {reason}." for reason in without)]
    found = [f"- {h.fault}, {h.job}, {h.what}: {sentence}" for h in happened for sentence in h.broken]
    lines += ["Broken:", "", *found] if found else []
    return "\n".join(lines).rstrip() + "\n"
