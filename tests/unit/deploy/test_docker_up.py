"""`laptime up --pool docker` against a socket that answers as Docker does: the checks, the template, the end."""

from __future__ import annotations

import contextlib
import gc
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serving import Quiet

from laptime.cli import containers
from laptime.cli.up import check_docker, check_pool
from laptime.errors import RunError, UsageError
from laptime.places import Places

ROOT = Path(__file__).resolve().parents[3]
IMAGE = {"Id": "sha256:" + "1" * 64, "RepoTags": ["laptime-trainer:dev"], "RepoDigests": []}


class Answers(Quiet):
    """Docker's answers by path, without the API's version in front; what was asked is kept."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        server: Any = self.server
        path = self.path.partition("?")[0]
        path = path[path.index("/", 1) :] if path.startswith("/v1.") else path
        server.asked.append((self.command, path, self.path.partition("?")[2]))
        status, body = server.answers.get((self.command, path), (404, {"message": f"No such thing: {path}"}))
        self.give(json.dumps(body).encode() if body is not None else b"", status, kind="application/json")

    do_GET = do_POST = do_DELETE = _answer

    def address_string(self) -> str:
        """A Unix socket's client has no address."""
        return "socket"


class Engine(socketserver.ThreadingUnixStreamServer):
    """A socket that answers as Docker does."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(path, Answers)
        self.asked: list[tuple[str, str, str]] = []
        self.answers: dict[tuple[str, str], tuple[int, object]] = {
            ("GET", "/version"): (200, {"ApiVersion": "1.41", "Version": "20.10.24"}),
            ("GET", "/_ping"): (200, "OK"),
            ("GET", "/info"): (200, {"Runtimes": {"runc": {"path": "runc"}}}),
            ("GET", "/images/laptime-trainer:dev/json"): (200, IMAGE),
        }


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with Engine(str(tmp_path / "d.sock")) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'd.sock'}")
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(engine: Engine) -> Iterator[Any]:
    with contextlib.closing(containers.connect()) as found:
        yield found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_socket_that_is_not_there_is_told_with_what_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(RunError, match=r"no Docker answers at unix:///nowhere/docker\.sock: start it"):
        check_docker("laptime-trainer:dev", gpus=False)
    gc.collect()  # docker's client leaves the socket that could not connect open, which must not be told later


def test_an_image_that_is_not_there_is_told_with_how_to_build_it(engine: Engine) -> None:
    with pytest.raises(UsageError, match=r"no image other:1 .*docker build .*--target trainer --tag other:1"):
        check_docker("other:1", gpus=False)


def test_what_is_no_name_of_an_image_is_told(engine: Engine) -> None:
    engine.answers["GET", "/images/A%20b/json"] = (400, {"message": "invalid reference format"})
    with pytest.raises(UsageError, match="invalid reference format"):
        check_docker("A b", gpus=False)


def test_gpus_without_a_runtime_for_them_are_told_before_anything_starts(
    engine: Engine, client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no NVIDIA runtime: install the NVIDIA Container Toolkit"):
        check_docker("laptime-trainer:dev", gpus=True)
    engine.answers["GET", "/info"] = (200, {"Runtimes": {"runc": {}, "nvidia": {}}})
    containers.check_gpus(client)
    by_cdi = {"Runtimes": {"runc": {}}, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}
    engine.answers["GET", "/info"] = (200, by_cdi)
    containers.check_gpus(client)


def test_gpus_are_for_containers_and_pools_have_names() -> None:
    with pytest.raises(UsageError, match="--gpus is for --pool docker"):
        check_pool("process", gpus=True)
    with pytest.raises(UsageError, match=r"unknown pool 'dokcer': did you mean docker"):
        check_pool("dokcer", gpus=False)
    assert check_pool("docker", gpus=True) == "docker"


def test_runs_carry_the_registrys_digest_or_the_images_id(engine: Engine, client: Any) -> None:
    assert containers.find_image(client, "laptime-trainer:dev")[1] == f"laptime-trainer:dev@{IMAGE['Id']}"
    pushed = {**IMAGE, "RepoDigests": ["team/laptime-trainer@sha256:" + "2" * 64]}
    engine.answers["GET", "/images/laptime-trainer:dev/json"] = (200, pushed)
    assert containers.find_image(client, "laptime-trainer:dev") == (IMAGE["Id"], pushed["RepoDigests"][0])


def test_the_pools_template_names_the_image_by_its_id(tmp_path: Path) -> None:
    given = (str(IMAGE["Id"]), "laptime-trainer:dev@sha256:1")
    path = containers.write_template(ROOT, Places(tmp_path), given, {"MLFLOW_TRACKING_URI": "http://x"}, gpus=True)
    assert path.stat().st_mode & 0o077 == 0  # an address may hold a password
    found = json.loads(path.read_text(encoding="utf-8"))["variables"]["properties"]
    assert found["image"]["default"] == IMAGE["Id"]
    assert found["env"]["default"] == {"MLFLOW_TRACKING_URI": "http://x", "LAPTIME_IMAGE": given[1]}
    assert found["labels"]["default"] == {"laptime.pool": containers.POOL, "laptime.home": str(tmp_path)}
    assert found["gpus"]["default"][0]["count"] == -1


def test_containers_get_what_leads_to_the_stores_and_nothing_else() -> None:
    stores = {"AWS_SECRET_ACCESS_KEY": "s", "MLFLOW_TRACKING_TOKEN": "t", "LAPTIME_DATA_MIRROR": "s3://b/data"}
    more = {"AWS_REGION": "", "AWS_CONFIG_FILE": "/home/me/.aws/config", "HOME": "/home/me", "GITHUB_TOKEN": "g"}
    assert containers.store_variables(stores | more) == stores


def test_flow_runs_of_this_home_are_cancelled_first_and_last(engine: Engine, client: Any, tmp_path: Path) -> None:
    """One ends by itself once it is cancelled; another stays, and is removed."""
    names = {"c1": "run-1", "stays": "run-2"}
    for name, run in names.items():
        config = {"Labels": {"io.prefect.flow-run-id": run}}
        found = {"Id": name, "State": {"Status": "running"}, "Config": config}
        engine.answers["GET", f"/containers/{name}/json"] = (200, found)
    engine.answers["DELETE", "/containers/stays"] = (204, None)
    engine.answers["GET", "/containers/json"] = (200, [{"Id": name} for name in names])
    cancelled: list[str] = []

    def cancel(run: str) -> None:
        cancelled.append(run)
        if run == "run-2":
            raise RunError("no such run")
        engine.answers["GET", "/containers/json"] = (200, [{"Id": "stays"}])

    containers.end_containers(client, tmp_path, cancel, grace_s=0.0)
    assert cancelled == ["run-1", "run-2"]
    assert [path for command, path, _ in engine.asked if command == "DELETE"] == ["/containers/stays"]
    assert "laptime.home" in next(query for _, path, query in engine.asked if path == "/containers/json")

    engine.answers["GET", "/containers/json"] = (200, [])
    with containers.ending_containers(client, tmp_path, cancel):
        engine.answers["GET", "/containers/json"] = (200, [{"Id": "c1"}])
        engine.answers["DELETE", "/containers/c1"] = (204, None)
        engine.answers["GET", "/containers/stays/json"] = (404, {"message": "gone"})
        cancelled.clear()
    assert cancelled == ["run-1"]
