"""The network policies of k8s/: each address that a variable names can be reached, and nothing else can."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from tests.unit.deploy import manifests
from tests.unit.deploy.manifests import (
    FOLDERS,
    K8S,
    Document,
    build,
    environment,
    labels_of,
    matches,
    named,
    of_kind,
    pod_of,
    workloads,
)

pytestmark = manifests.needs_kubectl
FLOW_RUN = {"app.kubernetes.io/component": "flow-run"}
DDP = {"app.kubernetes.io/part-of": "laptime", "laptime.run": "a"}
DNS = {"k8s-app": "kube-dns"}
PUBLIC, PRIVATE = "203.0.113.7", "10.1.2.3"
_PORTS = {"https": 443, "http": 80, "postgresql": 5432, "postgresql+asyncpg": 5432}

Labels = dict[str, str]


def policies(documents: tuple[Document, ...], pod: Labels, side: str) -> list[Document]:
    """The policies that govern one side (Ingress, Egress) of a pod."""
    return [
        policy
        for policy in of_kind(documents, "NetworkPolicy")
        if side in policy["spec"]["policyTypes"] and matches(policy["spec"]["podSelector"], pod)
    ]


def allowed(documents: tuple[Document, ...], pod: Labels, side: str, peer: Labels | str, port: int) -> bool:
    """Whether the policies let a pod talk to, or hear from, a peer (labels of a pod, or an address) at a port."""
    found = policies(documents, pod, side)
    assert found, "default-deny governs every pod"
    rules = [rule for policy in found for rule in policy["spec"].get(side.lower(), [])]
    return any(_has_port(rule, port) and _has_peer(rule["to" if side == "Egress" else "from"], peer) for rule in rules)


def _has_port(rule: Document, port: int) -> bool:
    return "ports" not in rule or port in [entry["port"] for entry in rule["ports"]]


def _has_peer(peers: list[Document], peer: Labels | str) -> bool:
    if isinstance(peer, str):
        return any("ipBlock" in entry and _in_block(entry["ipBlock"], peer) for entry in peers)
    # DNS alone stands in another namespace.
    here = [entry for entry in peers if "podSelector" in entry and ("namespaceSelector" in entry) == (peer == DNS)]
    return any(matches(entry["podSelector"], peer) for entry in here)


def _in_block(block: Document, address: str) -> bool:
    holes = [ip_network(hole) for hole in block.get("except", [])]
    found = ip_address(address)
    return found in ip_network(block["cidr"]) and not any(found in hole for hole in holes)


def connects(documents: tuple[Document, ...], client: Labels, server: Labels, port: int) -> bool:
    return allowed(documents, client, "Egress", server, port) and allowed(documents, server, "Ingress", client, port)


def labels_by_service(documents: tuple[Document, ...], name: str) -> Labels:
    selector = {"matchLabels": named(documents, "Service", name)["spec"]["selector"]}
    (found,) = [labels_of(workload) for workload in workloads(documents) if matches(selector, labels_of(workload))]
    return found


def clients(documents: tuple[Document, ...]) -> list[tuple[Labels, dict[str, str]]]:
    """Every pod with its variables, those of the flow runs among them."""
    found = [
        (labels_of(workload), environment(documents, container))
        for workload in workloads(documents)
        for container in manifests.containers(pod_of(workload))
    ]
    return [*found, (FLOW_RUN, named(documents, "ConfigMap", "laptime-run")["data"])]


def addresses(variables: dict[str, str]) -> list[tuple[str, int]]:
    """The hosts and ports that variables name; what stands on localhost is meant for a browser."""
    split = [urlsplit(value) for value in variables.values() if "://" in value]
    found = [(url.hostname or "", url.port or _PORTS[url.scheme]) for url in split if url.scheme in _PORTS]
    return [(host, port) for host, port in found if host != "localhost"]


def test_every_address_in_a_variable_can_be_reached(documents: tuple[Document, ...]) -> None:
    services = {service["metadata"]["name"] for service in of_kind(documents, "Service")}
    tried = set()
    for client, variables in clients(documents):
        for host, port in addresses(variables):
            if host in services:
                assert connects(documents, client, labels_by_service(documents, host), port), (client, host)
            else:
                assert "." in host, host
                for address in (PUBLIC, PRIVATE):
                    assert allowed(documents, client, "Egress", address, port), (client, host)
            tried.add((host, port))
    assert {("prefect-server", 4200), ("mlflow", 5000)} < tried
    assert len(tried) == 4


def test_every_pod_finds_names(documents: tuple[Document, ...]) -> None:
    for client, _ in clients(documents):
        assert allowed(documents, client, "Egress", DNS, 53)


def test_each_policy_governs_a_pod(documents: tuple[Document, ...]) -> None:
    pods = [*(labels_of(workload) for workload in workloads(documents)), FLOW_RUN, DDP]
    for policy in of_kind(documents, "NetworkPolicy"):
        assert any(matches(policy["spec"]["podSelector"], pod) for pod in pods), policy["metadata"]["name"]


def test_the_worker_alone_reaches_the_kubernetes_api() -> None:
    base = build(K8S / "base")
    reaching = {
        client.get("app.kubernetes.io/name", "flow-run")
        for client, _ in clients(base)
        if allowed(base, client, "Egress", PRIVATE, 6443)
    }
    assert reaching == {"prefect-worker"}
    assert allowed(build(K8S / "overlays/ddp"), FLOW_RUN, "Egress", PRIVATE, 6443)


def test_flow_runs_download_from_outside_but_not_from_inside() -> None:
    base = build(K8S / "base")
    assert allowed(base, FLOW_RUN, "Egress", PUBLIC, 443)
    assert not allowed(base, FLOW_RUN, "Egress", PRIVATE, 443)
    assert not allowed(base, FLOW_RUN, "Egress", PUBLIC, 22)


def test_strangers_and_neighbours_are_turned_away() -> None:
    base = build(K8S / "base")
    stores = [("postgres", 5432), ("s3", 8333), ("mlflow", 5000), ("prefect-server", 4200)]
    for name, port in stores:
        server = labels_by_service(base, name)
        assert not allowed(base, server, "Ingress", {"app": "stranger"}, port)
        assert not allowed(base, server, "Ingress", PUBLIC, port)
    assert not connects(base, FLOW_RUN, labels_by_service(base, "postgres"), 5432)
    assert not connects(base, labels_by_service(base, "mlflow"), labels_by_service(base, "prefect-server"), 4200)
    assert not connects(base, FLOW_RUN, FLOW_RUN, 29400)


def test_stores_call_nobody() -> None:
    base = build(K8S / "base")
    for name in ("postgres", "s3"):
        store = labels_by_service(base, name)
        assert not allowed(base, store, "Egress", PUBLIC, 443)
        assert not connects(base, store, labels_by_service(base, "mlflow"), 5000)


def test_ranks_of_a_run_reach_each_other_and_s3_alone() -> None:
    ddp = build(K8S / "overlays/ddp")
    for port in (29400, 41234):
        assert connects(ddp, DDP, DDP, port)
    assert connects(ddp, DDP, labels_by_service(ddp, "s3"), 8333)
    assert not connects(ddp, FLOW_RUN, DDP, 29400)
    assert not connects(ddp, DDP, labels_by_service(ddp, "postgres"), 5432)
    assert not allowed(ddp, DDP, "Egress", PUBLIC, 443)


def test_with_a_managed_s3_ranks_reach_their_run_store() -> None:
    external = build(K8S / "overlays/external")
    for pod in (FLOW_RUN, DDP):
        assert allowed(external, pod, "Egress", PUBLIC, 443)


def test_what_is_told_to_delete_a_left_service_spares_the_stack() -> None:
    told = (K8S.parent / "docs/several-nodes.md").read_text(encoding="utf-8")
    selector = re.search(r"kubectl --namespace laptime delete service -l ([^`]+)`", told)
    assert selector is not None
    name = selector[1]
    assert name in DDP
    for folder in FOLDERS:
        assert not any(name in service["metadata"]["labels"] for service in of_kind(build(K8S / folder), "Service"))
