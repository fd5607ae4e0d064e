"""What `laptime up --pool docker` needs of Docker: the checks before anything starts, the pool's template, its end."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from laptime.errors import RunError, UsageError, shorten
from laptime.places import Places

POOL = "laptime-docker"
PREFECT_FILE = "docker/prefect.yaml"
_TEMPLATE = "docker/base-job-template.json"
_SOCKET = "unix:///var/run/docker.sock"
_HOME = "laptime.home"
_ALL_GPUS = [{"driver": "nvidia", "count": -1, "capabilities": [["gpu"]]}]
_FLOW_RUN = "io.prefect.flow-run-id"
# What leads a flow run to stores of the user's own. Names of files are left out: a container does not see them.
_STORES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "MLFLOW_S3_ENDPOINT_URL",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "LAPTIME_DATA_MIRROR",
)
# A flow run that is cancelled closes its journal and its MLflow runs first.
_GRACE_S = 20.0
_LOOK_EVERY_S = 0.2

Cancel = Callable[[str], None]


def connect() -> Any:
    """A client of Docker that has had an answer.

    Raises:
        UsageError: the extra is missing.
        RunError: nothing answers, or not to this user.
    """
    if importlib.util.find_spec("prefect_docker") is None:
        raise UsageError("--pool docker needs the extra docker: pip install 'laptime[docker]'.")
    from docker.client import from_env
    from docker.errors import DockerException

    address = os.environ.get("DOCKER_HOST") or _SOCKET
    try:
        client = from_env()
        client.ping()
    except DockerException as error:
        if "Permission denied" in str(error):
            raise RunError(
                f"this user may not use Docker at {shorten(address)}: join its group (sudo usermod -aG docker $USER, "
                "then log in again), or name another socket with DOCKER_HOST."
            ) from error
        raise RunError(
            f"no Docker answers at {shorten(address)}: start it (sudo systemctl start docker), or name its socket "
            "with DOCKER_HOST."
        ) from error
    return client


def find_image(client: Any, name: str) -> tuple[str, str]:
    """The image that flow runs get, so that one that is built meanwhile changes nothing.

    Returns:
        Its id, by which containers are made, and NAME@DIGEST for the records: the registry's digest where it came from
        one, else the id.

    Raises:
        UsageError: it is not on this machine.
    """
    from docker.errors import APIError, NotFound

    try:
        image = client.images.get(name)
    except NotFound as error:
        raise UsageError(
            f"there is no image {shorten(name)} on this machine: build it (docker build --file docker/Dockerfile "
            f"--target trainer --tag {shorten(name)} .), pull it, or name another with --image."
        ) from error
    except APIError as error:
        raise UsageError(
            f"--image {shorten(name)!r} is no image's name ({error.explanation}): give NAME:TAG."
        ) from error
    digests = image.attrs.get("RepoDigests") or [f"{name}@{image.id}"]
    return str(image.id), str(digests[0])


def check_gpus(client: Any) -> None:
    """Raises UsageError where Docker can't give a container a GPU."""
    facts = client.info()
    devices = json.dumps(facts.get("DiscoveredDevices") or [])
    if "nvidia" in facts.get("Runtimes", {}) or "nvidia.com/gpu" in devices:
        return
    # Docker takes the hook from its PATH even where no runtime is registered.
    if shutil.which("nvidia-container-runtime-hook"):
        return
    raise UsageError(
        "--gpus: this Docker has no NVIDIA runtime: install the NVIDIA Container Toolkit and run sudo nvidia-ctk "
        "runtime configure --runtime=docker, or leave --gpus out."
    )


def store_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables out of an environment that lead to stores, as each flow run's container needs them."""
    return {name: environment[name] for name in _STORES if environment.get(name)}


def write_template(checkout: Path, places: Places, image: tuple[str, str], env: Mapping[str, str], gpus: bool) -> Path:
    """The pool's base job template with this machine's image, addresses and GPUs.

    Args:
        checkout: where the template of the tree stands.
        places: where the written one goes; its containers carry their home's name.
        image: what `find_image` returned.
        env: variables of the flow runs.
        gpus: whether each container gets all GPUs.
    """
    template = json.loads((checkout / _TEMPLATE).read_text(encoding="utf-8"))
    found = template["variables"]["properties"]
    found["image"]["default"] = image[0]
    found["env"]["default"] = {**env, "LAPTIME_IMAGE": image[1]}
    found["labels"]["default"] = {**found["labels"]["default"], _HOME: str(places.home)}
    if gpus:
        found["gpus"]["default"] = _ALL_GPUS
    path = places.home / "docker-template.json"
    path.unlink(missing_ok=True)
    # The addresses of a store of one's own may hold a password.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(template, indent=2) + "\n")
    return path


@contextmanager
def ending_containers(client: Any, home: Path, cancel: Cancel) -> Iterator[None]:
    """Ends the flow runs' containers on the way in, which an earlier crash may have left, and on the way out.

    A container outlives the worker that started it.
    """
    end_containers(client, home, cancel)
    try:
        yield
    finally:
        # A second Ctrl-C must not leave containers behind.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            end_containers(client, home, cancel)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def end_containers(client: Any, home: Path, cancel: Cancel, grace_s: float = _GRACE_S) -> None:
    """Cancels the flow runs that run in containers of a home; what is left of them after a while is removed.

    Docker's own stop would not do: `prefect flow-run execute` dies of it and takes the engine with it, before that has
    closed its runs.

    Args:
        client: of Docker.
        home: whose containers.
        cancel: cancels a flow run by its id; what it can't is removed all the same.
        grace_s: how long a cancelled flow run may take to end.
    """
    from docker.errors import APIError

    def living() -> list[Any]:
        label = f"{_HOME}={home}"
        found: list[Any] = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        return found

    for container in living():
        with suppress(RunError):
            cancel(container.labels.get(_FLOW_RUN, ""))
    until = time.monotonic() + grace_s
    while (left := living()) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    for container in left:
        with suppress(APIError):  # it may be gone meanwhile
            container.remove(force=True)
