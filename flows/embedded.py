"""Settings for a flow run without a server. To be called before prefect is imported, which reads them then."""

from __future__ import annotations

import os

from laptime.places import find_places


def use_embedded_server() -> None:
    """Sets what the environment leaves open: a server that lives as long as this process, stores under LAPTIME_HOME.

    `prefect.toml` names the server of `laptime up`; an empty address takes it back.
    """
    places = find_places()
    os.environ.setdefault("PREFECT_API_URL", "")
    os.environ.setdefault("PREFECT_HOME", str(places.prefect))
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "ERROR")
    # Its default of 20 s is what a busy machine needs for imports alone.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    places.prefect.mkdir(parents=True, exist_ok=True)
