"""What Docker builds and starts, as far as reading it tells: nothing is named that isn't there, nothing is open."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from flows.optimize import optimize

from laptime.cli.containers import POOL, PREFECT_FILE

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
TARGETS = ("trainer", "worker", "mlflow")


def stages() -> dict[str, list[str]]:
    """The Dockerfile's stages: their instructions, continued lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    for line in filter(None, text.replace("\\\n", " ").splitlines()):
        if line.startswith("FROM "):
            found[line.split()[-1]] = []
        if found:
            found[list(found)[-1]].append(line)
    return found


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def test_every_stage_that_is_copied_from_or_built_on_exists() -> None:
    known = {"${BASE_IMAGE}"}
    for name, lines in stages().items():
        assert lines[0].split()[1] in known, lines[0]
        for line in lines:
            for source in re.findall(r"--from=(\S+)", line):
                assert source in known, line
        known.add(name)
    assert known >= set(TARGETS)


def test_the_classic_builder_takes_the_dockerfile() -> None:
    text = "\n".join(line for lines in stages().values() for line in lines)
    for newer in ("--mount", "--chmod", "--link", "<<"):
        assert newer not in text
    assert "# syntax" not in (DOCKER / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", TARGETS)
def test_every_image_is_without_root_has_a_health_check_and_names_its_commit(target: str) -> None:
    lines = stages()[target]
    assert "USER 10001:10001" in lines
    assert sum(line.startswith("HEALTHCHECK ") for line in lines) == 1
    assert any('org.opencontainers.image.revision="${LAPTIME_COMMIT}"' in line for line in lines)


def test_the_sources_come_after_everything_that_is_installed_from_an_index() -> None:
    found = stages()
    for name, lines in found.items():
        if name.endswith("-environment"):
            copied = " ".join(line for line in lines if line.startswith("COPY "))
            assert " src" not in copied
            assert "pyproject.toml" not in copied
    assert not any("pip install" in line for target in TARGETS for line in found[target])


def test_what_is_copied_exists_and_passes_the_ignore_file() -> None:
    allowed = [
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")
    ]
    for line in (line for lines in stages().values() for line in lines):
        if not line.startswith("COPY ") or "--from=" in line:
            continue
        for source in line.split()[1:-1]:
            assert (ROOT / source).exists(), line
            assert source in allowed, line
    assert "docker/.env" not in allowed


def test_the_worker_and_mlflow_install_no_torch() -> None:
    def wanted(*arguments: str) -> list[str]:
        command = [sys.executable, str(DOCKER / "requirements.py"), *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()

    for line in (line for line in stages()["requirements"] if line.startswith("RUN ")):
        for part in line.removeprefix("RUN ").split("&&"):
            given, _, file = part.split("requirements.py")[1].partition(">")
            found = wanted(*given.split())
            assert any(name.startswith("torch>") for name in found) == (file.strip() == "trainer.txt")
    assert any(name.startswith("prefect-docker") for name in wanted("--only", "prefect", "--extra", "docker"))


def test_ports_are_open_on_loopback_alone() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_secret_has_a_default() -> None:
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    secrets = set(re.findall(r"\$\{(LAPTIME_\w*(?:PASSWORD|KEY))", text))
    assert len(secrets) == 5
    for name in secrets:
        forms = set(re.findall(rf"\$\{{{name}([^}}]*)\}}", text))
        assert any(form.startswith(":?") for form in forms), name
        assert all(form == "" or form.startswith(":?") for form in forms), name
    example = (DOCKER / ".env.example").read_text(encoding="utf-8").splitlines()
    assert {f"{name}=" for name in secrets} <= set(example)
    assert "/docker/.env" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()


def test_every_variable_of_the_compose_file_is_in_the_example() -> None:
    named = set(re.findall(r"\$\{(LAPTIME_\w+)", (DOCKER / "compose.yaml").read_text(encoding="utf-8")))
    told = set(re.findall(r"(LAPTIME_\w+)=", (DOCKER / ".env.example").read_text(encoding="utf-8")))
    assert named - told == {
        # What the build passes on, and stand-ins for images from elsewhere.
        "LAPTIME_BASE_IMAGE",
        "LAPTIME_COMMIT",
        "LAPTIME_POSTGRES_IMAGE",
        "LAPTIME_S3_IMAGE",
    }


def test_every_service_is_hardened_and_what_it_names_exists() -> None:
    whole = compose()
    for name, service in services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name
        assert set(service.get("depends_on", {})) <= set(services()), name
        assert service.get("build", {}).get("target", "trainer") in TARGETS, name
        if service["restart"] != "no":
            assert "healthcheck" in service, name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert os.access(DOCKER / source, os.X_OK), volume
            elif not source.startswith("/"):
                assert source in whole["volumes"], volume


def test_whoever_waits_for_a_service_waits_for_its_health_or_its_end() -> None:
    for service in services().values():
        for name, condition in service.get("depends_on", {}).items():
            once = services()[name]["restart"] == "no"
            assert condition["condition"] == ("service_completed_successfully" if once else "service_healthy")


def test_the_gpus_are_asked_for_under_the_profile_gpu_alone() -> None:
    asking = {name for name, service in services().items() if "deploy" in service}
    assert asking == {"worker-gpu"}
    assert services()["worker-gpu"]["profiles"] == ["gpu"]
    assert services()["worker"]["profiles"] == ["cpu"]
    assert "COMPOSE_PROFILES=cpu" in (DOCKER / ".env.example").read_text(encoding="utf-8")


def test_the_deployments_run_where_the_image_keeps_the_flows() -> None:
    wanted = yaml.safe_load((ROOT / PREFECT_FILE).read_text(encoding="utf-8"))
    folder = next(iter(wanted["pull"][0].values()))["directory"]
    assert f"WORKDIR {folder}" in stages()["base"]
    names = {deployment["name"] for deployment in wanted["deployments"]}
    assert names == {"cifar-docker", "eurosat-docker", "detection-docker"}
    for deployment in wanted["deployments"]:
        assert deployment["name"] == f"{deployment['parameters']['workload']}-docker"
        optimize.validate_parameters(deployment["parameters"])
        assert deployment["work_pool"]["name"] == POOL
        assert (ROOT / deployment["entrypoint"].partition(":")[0]).is_file()


def test_bake_builds_every_target() -> None:
    text = (DOCKER / "bake.hcl").read_text(encoding="utf-8")
    assert text.count(", ".join(f'"{target}"' for target in TARGETS)) == 2


def test_a_container_gets_what_the_template_says() -> None:
    """The template's placeholders and variables agree, and prefect-docker takes the result."""
    from prefect.utilities.templating import apply_values
    from prefect_docker.worker import DockerWorkerJobConfiguration

    template = json.loads((DOCKER / "base-job-template.json").read_text(encoding="utf-8"))
    configuration, variables = template["job_configuration"], template["variables"]["properties"]
    assert set(re.findall(r"{{ (\w+) }}", json.dumps(configuration))) == set(variables)
    values = {name: entry["default"] for name, entry in variables.items() if "default" in entry}
    gpus = [{"driver": "nvidia", "count": -1, "capabilities": [["gpu"]]}]
    made = DockerWorkerJobConfiguration(**apply_values(configuration, {**values, "gpus": gpus, "mem_limit": "8g"}))
    assert made.auto_remove
    assert (made.mem_limit, made.memswap_limit) == ("8g", "8g")
    kwargs = made.container_create_kwargs
    assert kwargs is not None
    assert kwargs["device_requests"] == gpus
    assert kwargs["read_only"] is True
    assert kwargs["shm_size"] == "2g"
    assert "/run/lock:/run/lock" in made.volumes


@pytest.mark.parametrize(
    ("program", "arguments", "files"),
    [
        ("hadolint", [], ["docker/Dockerfile", *map(str, sorted((ROOT / "tests/containers").glob("*/Dockerfile")))]),
        (
            "shellcheck",
            [],
            [
                "docker/healthy",
                "docker/postgres-init.sh",
                "scripts/test-containers",
                "tests/containers/postgres/entrypoint",
            ],
        ),
        (
            "yamllint",
            ["--strict", "-d", "{extends: relaxed, rules: {line-length: {max: 130}}}"],
            ["docker/compose.yaml", PREFECT_FILE],
        ),
    ],
)
def test_the_linters_have_nothing_to_say(program: str, arguments: list[str], files: list[str]) -> None:
    path = shutil.which(program, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert path is not None, f"{program} is in the extra dev"
    done = subprocess.run([path, *arguments, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
