"""Settings for a flow run without a server. To be called before prefect is imported, which reads them then."""

from __future__ import annotations

import os
import sys

from laptime.errors import LaptimeError, in_words
from laptime.places import find_places


def use_embedded_server() -> None:
    """Sets what the environment leaves open: a server that lives as long as this process, stores under LAPTIME_HOME.

    `prefect.toml` names the server of `laptime up`; an empty address takes it back. Ends the process with one sentence
    where there can be no stores.
    """
    try:
        places = find_places()
        places.prefect.mkdir(parents=True, exist_ok=True)
    except (LaptimeError, OSError) as error:
        sys.stderr.write(f"laptime: {in_words(error) if isinstance(error, OSError) else error}\n")
        raise SystemExit(error.exit_code if isinstance(error, LaptimeError) else 1) from error
    os.environ.setdefault("PREFECT_API_URL", "")
    os.environ.setdefault("PREFECT_HOME", str(places.prefect))
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "ERROR")
    # Its default of 20 s is what a busy machine needs for imports alone.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    os.environ.setdefault("DO_NOT_TRACK", "true")
