"""What a step of 100 ms on two cores is changed by, for the rules of loading: ones that fire, ones that must not."""

from __future__ import annotations

SLEEPS = {"wait_ms": 30.0, "fetch_cpu_share": 0.05, "process_cpu_ms": 141.0}
# Two workers that mostly wait, on two cores that the training fills while it does not wait.
ASLEEP = {"workers": 2, "wait_ms": 30.0, "process_cpu_ms": 130.0, "workers_cpu_ms": 6.0}
# Neither memory nor a core is free for a loader that computes.
FULL = {"wait_ms": 30.0, "fetch_cpu_share": 1.0, "process_cpu_ms": 170.0, "train_mib": 20_000.0}

# An image folder whose items differ in each reading.
RANDOM = {"wait_ms": 30.0, "decoding_share": 0.6, "refusals": {"resident": "its items differ"}}

Changes = tuple[dict[str, object], ...]

LOADING: tuple[tuple[str, tuple[Changes, Changes]], ...] = (
    (
        "workers",
        (
            (
                SLEEPS,
                {"wait_ms": 30.0, "fetch_cpu_share": 1.0, "process_cpu_ms": 100.0},
                {"workers": 1, "wait_ms": 30.0, "process_cpu_ms": 60.0, "cores": 8},
                ASLEEP,
                {**ASLEEP, "workers_cpu_ms": 120.0, "cores": 8},
            ),
            (
                {},
                {"wait_ms": 30.0, "fetch_cpu_share": 1.0, "process_cpu_ms": 170.0},
                {**SLEEPS, "loader": "resident"},
                {"workers": 2, "wait_ms": 30.0, "process_cpu_ms": 190.0},
                {"workers": 1, "wait_ms": 30.0, "process_cpu_ms": 60.0, "cores": 8, "ranks": 4},
                {"wait_ms": 30.0, "fetch_cpu_share": 1.0, "process_cpu_ms": 100.0, "ranks": 2},
                {**ASLEEP, "workers_cpu_ms": 60.0},
                {**ASLEEP, "workers_cpu_ms": None},
            ),
        ),
    ),
    (
        "resident-data",
        (
            ({"wait_ms": 30.0},),
            ({}, {"wait_ms": 30.0, "train_mib": 20_000.0}, {"wait_ms": 30.0, "loader": "resident"}),
        ),
    ),
    (
        "decoded",
        (
            (RANDOM, {**RANDOM, "workers": 2, "process_cpu_ms": 130.0}),
            (
                {"decoding_share": 0.6},
                {**RANDOM, "decoding_share": None},
                {**RANDOM, "refusals": {}},  # resident-data
                {**RANDOM, "loader": "resident"},
            ),
        ),
    ),
    (
        "batch-transform",
        (
            (
                FULL,
                {**FULL, "train_mib": 150.0, "refusals": {"resident": "its items are not of one shape"}},
                {**ASLEEP, "workers_cpu_ms": 66.0, "train_mib": 20_000.0},
            ),
            (
                {},
                {**FULL, "train_mib": 150.0},  # resident-data
                {**FULL, "process_cpu_ms": 100.0},  # workers
                {**FULL, "fetch_cpu_share": 0.1},
                {**FULL, "loader": "resident"},
                {**ASLEEP, "train_mib": 20_000.0},
            ),
        ),
    ),
)
