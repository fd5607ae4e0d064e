"""Where the parts of a run stand in a run store: `STORE/RUN/...`, and `STORE/data/DIGEST` for what they train on."""

from __future__ import annotations

CHECKPOINTS = "checkpoints"
# A run's profile is a folder of many files, which travels as one.
PROFILE, PROFILE_ARCHIVE = "profile", "profile.zip"


def data_place(store: str, digest: str) -> str:
    """The mirror, or in a folder the store, of one run's data; by digest, so that runs don't take each other's."""
    return f"{store}/data/{digest}"


def failure_name(index: int) -> str:
    """The file in which a machine says why its part failed."""
    return f"failed-{index}.json"
