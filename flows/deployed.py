"""What holds for the flow runs of a deployment, and not for a flow that somebody starts by hand."""

from __future__ import annotations

from prefect.runtime import deployment

from laptime.host.processes import die_with_parent


def end_with_worker() -> None:
    """Asks the kernel for SIGTERM, Prefect's own way to end a flow run, when the worker that started it dies.

    A worker that is killed tells nobody, and the flow run would train on beside what the next worker starts. To be
    called from the main thread, which lives as long as the process. In a container it changes nothing: the parent is
    the container's first process, with which all of it ends.
    """
    if deployment.id:
        die_with_parent()
