"""Memory that a step gives back to the system and gets again, page by page."""

from __future__ import annotations

from laptime.advice.figures import ms
from laptime.advice.outcome import Abstain, Outcome, Proposal, known
from laptime.advice.signals import Signals

_LEAST = 0.05
# Where a page took the kernel longer, it did something else, or pages are large ones (2 MiB). On a Zen 4 under a
# hypervisor it took 2.1 to 3.0 us to map, clear and take back one of 4 KiB (docs/log.md, 29 November 2026).
_MOST_US = 5.0
# Of the kernel's CPU time this is not for pages where it is least.
_OTHERWISE = 0.1
# Of the pages so many may be met by one thread, as where batches are put together; all others by all threads at once.
_BY_ONE = (0.0, 0.35)

# Up to 32 MiB of pages of 4 KiB are within what glibc moves its thresholds by as blocks are freed: the same training
# mapped 187 to 316 pages a step in one process and 805 to 1,300 in another (docs/log.md, 29 November 2026).
_SETTLED, _MOVED = 8192, 0.25


def memory_pages(s: Signals) -> Outcome:
    """The kernel's time for pages, on one thread up to a third of it and on all of them the rest."""
    if s.device != "cpu" or s.has("keep-pages"):
        return None
    step, faults = known(s.step_ms, "the step's time"), known(s.page_faults, "the pages of memory that are mapped")
    system = known(s.system_cpu_ms, "the kernel's CPU time")
    if system < _LEAST * step or system * 1e3 > _MOST_US * faults:
        return None
    threads = known(s.threads, "the number of threads")
    low, high = (system * (share + (1 - share) / threads) for share in _BY_ONE)
    low *= 1 - _OTHERWISE
    if low + high < 2 * _LEAST * step:
        return None
    if high >= step:
        return Abstain("the kernel's time does not fit into the steps")
    moved = (
        ("glibc's thresholds move with what is freed, so that other runs may map fewer",) if faults < _SETTLED else ()
    )
    return Proposal(
        "memory-pages",
        "Each step gives its memory back to the system and gets it again, page by page: keep it.",
        (
            f"in a step of {ms(step)} ms the kernel maps {faults:,.0f} pages of memory and works for {ms(system)} ms, "
            f"added up over {threads} threads",
            *moved,
            "with them kept, the process holds the most it ever needed until it ends",
        ),
        (low * (_MOVED if moved else 1.0), high),
        0.8,
        remedy="keep-pages",
        code="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1073741824 python train.py",
    )
