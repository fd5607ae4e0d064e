"""The main job's command line: `python -m flows.optimize`, with the flow's parameters as options."""

from __future__ import annotations

import argparse
import atexit
import http.client
import inspect
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.settings import (
    PREFECT_API_SSL_CERT_FILE,
    PREFECT_API_TLS_INSECURE_SKIP_VERIFY,
    PREFECT_API_URL,
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE,
    temporary_settings,
)
from prefect.utilities.callables import parameter_docstrings

from flows.guard import guard_server
from flows.leaving import attend_signals, leave
from laptime.catalogue.own import is_own, place_of
from laptime.cli.ladder_view import closing_words
from laptime.compare.terminal import print_comparison
from laptime.console import leave_garbage
from laptime.errors import LaptimeError, shorten
from laptime.ladder import Ladder, LadderRequest, make_request, settled_preset
from laptime.ladder.first_round import tried_alone
from laptime.ladder.request import tracking_uri
from laptime.places import find_places
from laptime.variants import resolve

_ANSWER_S = 5.0
# What Prefect says where a server of this process's own does not start.
_NOT_STARTED = "connect to ephemeral Prefect API server"


def run(flow: Flow[..., Any], finished: list[Ladder], arguments: Sequence[str] | None = None) -> int:
    """Runs the flow in this process and shows the table of variants.

    Args:
        flow: the flow; its parameters are the options.
        finished: where the flow leaves its ladder.
        arguments: of the command line.

    Returns:
        0 done, 1 failed, 2 usage.
    """
    atexit.register(leave_garbage)
    given = vars(parser(flow).parse_args(arguments))
    try:
        request = _checked(given)
    except LaptimeError as error:
        return _complain(error)
    if unanswered := silent_server():
        sys.stderr.write(f"laptime: {unanswered}\n")
        return 1
    texts = {**request.model_dump(include=set(given)), "variants": given.get("variants")}
    attend_signals()
    if not PREFECT_API_URL.value():
        guard_server()
    try:
        with server_settings():
            state: State[Any] = flow(**texts, return_state=True)  # type: ignore[assignment]
    except (KeyboardInterrupt, TerminationSignal):
        leave()
    except RuntimeError as error:
        return _complain(_not_started(error))
    if finished:
        _show(finished[-1])
    if state.is_completed():
        return 0
    sys.stderr.write(f"laptime: {state.message}\n")
    return 1


def _show(ladder: Ladder) -> None:
    """The table, where there is one, and how to open what was made."""
    if ladder.comparison is None:
        return
    if not tried_alone(ladder):
        print_comparison(ladder.comparison)
    sys.stdout.write(closing_words(ladder) + "\n")


def _checked(given: dict[str, Any]) -> LadderRequest:
    """The request, before a server is started for a name that does not exist; raises UsageError."""
    request = make_request(**given)
    settled_preset(request)
    tracking_uri(request, find_places())
    if is_own(request.workload):
        place_of(request.workload)
    for name in request.variants or ():
        resolve(name)
    return request


def silent_server() -> str:
    """Why no server can be used; empty where the one of PREFECT_API_URL answers, or this run may have its own."""
    address = PREFECT_API_URL.value()
    if not address and not PREFECT_SERVER_ALLOW_EPHEMERAL_MODE.value():
        return (
            "PREFECT_API_URL names no server, and PREFECT_SERVER_ALLOW_EPHEMERAL_MODE forbids one of this run alone: "
            "set the first, or leave out the second."
        )
    if not address:
        return ""
    try:
        health = f"{address.rstrip('/')}/health"
        urllib.request.urlopen(health, timeout=_ANSWER_S, context=_trust()).close()  # noqa: S310 - as it is set
    except urllib.error.HTTPError as answer:
        answer.close()
        return ""  # it answers; what it thinks of this client, Prefect's own will hear
    except (OSError, ValueError, http.client.HTTPException) as error:
        own = " (PREFECT_API_SSL_CERT_FILE names a certificate of one's own)" if "CERTIFICATE" in str(error) else ""
        return (
            f"Prefect's server {shorten(address)} (PREFECT_API_URL) does not answer ({shorten(str(error))}): start "
            f"it{own}, or set PREFECT_API_URL to an empty text for a server of this run alone."
        )
    return ""


def _trust() -> ssl.SSLContext:
    """Whose certificates are believed, by the settings that Prefect's own client obeys; raises OSError for no file."""
    trust = ssl.create_default_context(cafile=PREFECT_API_SSL_CERT_FILE.value() or None)
    if PREFECT_API_TLS_INSECURE_SKIP_VERIFY.value():
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


def server_settings() -> AbstractContextManager[object]:
    """An empty address means no server: Prefect's events would take it for one and fail at each of them."""
    if PREFECT_API_URL.value():
        return nullcontext()
    return temporary_settings(restore_defaults={PREFECT_API_URL})


def parser(flow: Flow[..., Any]) -> argparse.ArgumentParser:
    """The options: one for each parameter, described as in the flow's docstring."""
    text = inspect.getdoc(flow.fn) or ""
    found = argparse.ArgumentParser(
        prog="python -m flows.optimize",
        description=text.partition("\n")[0],
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    helps = parameter_docstrings(text)
    for name in inspect.signature(flow.fn).parameters:
        found.add_argument(f"--{name.replace('_', '-')}", help=helps.get(name, "").replace("%", "%%"))
    return found


def _not_started(error: RuntimeError) -> LaptimeError:
    """What to tell where a server of this process's own does not start; raises any other error."""
    if _NOT_STARTED not in str(error):
        raise error
    return LaptimeError(
        "Prefect's temporary server did not come up in time: look at the disk and the load of this machine, give it "
        "longer (PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS), or see its own words with "
        "PREFECT_SERVER_LOGGING_LEVEL=INFO."
    )


def _complain(error: LaptimeError) -> int:
    sys.stderr.write(f"laptime: {error}\n")
    return error.exit_code
