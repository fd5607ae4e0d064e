"""The flow `gate`: does head train slower than base? docs/gate.md tells what it promises.

prefect deployment run gate/cifar --param base=main --watch
"""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run
from prefect.states import Failed
from pydantic import Field

from flows.deployed import end_with_worker
from laptime.catalogue import find_workload
from laptime.errors import LaptimeError, UsageError
from laptime.gate.reports import to_markdown
from laptime.gate.request import make_gate_request
from laptime.gate.track import stored_gates, track
from laptime.gate.whole import run_gate
from laptime.places import find_places
from laptime.tracking.uri import check_uri
from laptime.variants import resolve

Positive = Annotated[int, Field(ge=1)]


def _named() -> str:
    """The flow run's name: what is compared."""
    given = flow_run.parameters
    base = given["base_dir"] or given["base"] or "where head left main"
    return f"{given['workload']} against {base}"


def _require_text(base: object) -> None:
    """Refuses a commit that has become a float, as `12345e7` does: what was typed can't be told from it any more."""
    if isinstance(base, float):
        raise UsageError(
            f"base was read as the number {base!r}, as Prefect's command line reads digits around an e or a point: put "
            "it into quotes (--param 'base=\"12345e7\"'), or give more of the commit."
        )


@flow(name="gate", flow_run_name=_named, validate_parameters=True)
def gate(
    *,
    workload: str = "cifar",
    variant: str | None = None,
    base: str | int | float | None = None,
    base_dir: str | None = None,
    head_dir: str | None = None,
    max_slowdown: str | float = "10%",
    budget: str | float = "15m",
    max_pairs: Annotated[int, Field(ge=4)] = 24,
    limit_train: Positive | None = None,
    limit_test: Positive | None = None,
    data: str = "auto",
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0,
    link: list[str] | None = None,
) -> Any:
    """Trains base and head by turns and fails when, and only when, head's epochs are slower, or nothing was shown.

    Args:
        workload: What is trained; laptime list workloads shows the names.
        variant: What both sides train; empty for the optimized one of this machine.
        base: The target; base is where head left it. Empty for the main branch.
        base_dir: Base's checkout, instead of a ref; with head_dir.
        head_dir: Head's checkout.
        max_slowdown: The slowdown that must not pass, such as 10%.
        budget: Time for all pairs, such as 15m.
        max_pairs: Pairs at most.
        limit_train: Training images at most; empty for all.
        limit_test: Test images at most; empty for a fifth of the training images.
        data: auto, official, synthetic, a folder or archive, s3://… or http(s)://….
        seed: Seed of the first processes; each pair takes the next.
        link: Files and folders of the checkout that git ignores, seen from both commits.
    """
    given = dict(locals())
    # `prefect deployment run` reads 0.2, 900 and a commit of digits alone as numbers.
    texts = {name: str(given[name]) for name in ("base", "max_slowdown", "budget") if given[name] is not None}
    end_with_worker()
    logger = get_run_logger()
    try:
        _require_text(base)
        request = make_gate_request(**(given | texts))
        find_workload(request.workload)
        resolve(request.variant, workload=request.workload)
        # In the main thread, where a cancellation reaches it, and never submitted: a timed run stands alone.
        places = find_places()
        uri = check_uri(places.mlflow_uri)
        known = stored_gates(request.workload, uri, logger.info)
        record = run_gate(request, places, logger.info, elsewhere=known)
        track(record, places, uri, logger.info)
    except LaptimeError as error:
        return Failed(message=str(error))
    outcome = record.outcome
    assert outcome is not None
    create_markdown_artifact(to_markdown(record), key="gate", description=outcome.sentence[:200])
    if outcome.exit_code:
        return Failed(message=f"{outcome.kind}: {outcome.sentence}")
    return outcome.sentence
