"""The effect of a change on nodes, which the command reports in text, JSON and Markdown, in a real
Git repository.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from gitops_ds.core.errors import RevisionUnknown
from tests import gitservers, schemas
from tests.cli.commands import invoked
from tests.plan.world import config_map, daemonset

POOLS = """
environment: x
namespace: logging
pools:
  general: {match: [{key: pool, in: [general]}], nodes: 1000, allocatable: {cpu: "2", memory: 4Gi, pods: 58}}
  small: {match: [{key: pool, in: [small]}], nodes: 6, allocatable: {cpu: 80m, memory: 1Gi, pods: 58}}
"""  # noqa: E501


def asking(
    cpu: str, memory: str, image: str = "registry.example.com/agent:1", **spec: Any
) -> dict[str, Any]:
    body = daemonset(namespace="logging", **spec)
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    body["spec"]["template"]["spec"]["containers"] = [
        {"name": "agent", "image": image, "resources": resources}
    ]
    body["spec"]["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": "10%"}}
    return body


def node(name: str, *, ready: bool = True, **labels: str) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": status,
    }


def inventory(directory: Path, *items: dict[str, Any], name: str = "cluster.json") -> str:
    file = directory / name
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return str(file)


class Change:
    """A repository whose branch `change` leaves main; files are texts or objects."""

    def __init__(self, directory: Path) -> None:
        self.upstream = gitservers.Upstream(directory / "fleet")

    def of(self, base: dict[str, Any], head: dict[str, Any], gone: str = "") -> None:
        self.upstream.commit({name: _text(content) for name, content in base.items()})
        self.upstream.git("checkout", "--quiet", "-b", "change")
        if gone:
            self.upstream.git("rm", "--quiet", gone)
        self.upstream.commit({name: _text(content) for name, content in head.items()})

    def check(self, *arguments: str) -> Result:
        done = invoked("check", self.upstream.path, "--base", "main", *arguments)
        assert done.exception is None, done.output
        return done

    def report(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.check("-o", "json", *arguments).stdout)
        schemas.check(document, "check-report")
        return document


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


@pytest.fixture
def change(tmp_path: Path) -> Change:
    return Change(tmp_path)


CLUSTER = "environment: x\nnamespace: logging\n"
SETTINGS = {"gitops-ds.yaml": "version: v1\n", "environments/x.yaml": "{}\n"}
AGENT = "agents/agent/daemonset.yaml"


@pytest.mark.slow
def test_the_cost_and_the_missing_capacity_on_declared_nodes(change: Change) -> None:
    base = {**SETTINGS, "clusters/eu.yaml": POOLS, AGENT: asking("50m", "64Mi")}
    change.of(base, {AGENT: asking("90m", "128Mi")})
    text = change.check().stdout
    assert "restarts 1,006 nodes (1,000 of pool general, 6 of pool small)" in text
    assert "requests +40m cpu, +64Mi memory x 1,006 nodes = +40.24 cores, +62.88Gi memory\n" in text
    assert "does not fit on 6 nodes of pool small (Insufficient cpu)\n" in text
    assert (
        "note: 1,006 nodes of eu, from the pools declared in the cluster's file, not from the "
        "cluster\n" in text
    )
    report = change.report()
    assert report["nodes"] == [
        {"cluster": "eu", "source": "pools", "count": 1006, "pools": {"general": 1000, "small": 6}}
    ]
    ((one,),) = (group["changes"] for group in report["changes"])
    assert one["nodes"]["restarted"] == {"count": 1006, "pools": {"general": 1000, "small": 6}}
    assert one["cost"][0] == {"resource": "cpu", "perPod": 0.04, "nodes": 1006, "total": 40.24}
    assert one["misfits"] == [
        {"why": "Insufficient cpu", "surge": False, "count": 6, "pools": {"small": 6}}
    ]
    markdown = change.check("-o", "markdown").stdout
    assert "| requests |" in markdown
    assert "+40.24 cores, +62.88Gi memory" in markdown
    assert "not from the cluster" in markdown


def test_nodes_that_change_sides_are_named(change: Change, tmp_path: Path) -> None:
    file = inventory(
        tmp_path, node("node-a", pool="a"), node("node-b", pool="b"), node("node-c", pool="c")
    )
    change.of(
        {"a.json": asking("50m", "64Mi")},
        {"a.json": asking("50m", "64Mi", nodeSelector={"pool": "a"})},
    )
    text = change.check("--snapshot", file).stdout
    assert "loses 2 nodes: node-b, node-c\n" in text
    assert "restarts 1 node: node-a" in text
    assert "requests -0.1 cores, -128Mi memory over all its nodes\n" in text
    assert "note: 3 nodes, from the cluster or its snapshot\n" in text


def test_a_rollout_is_simulated_on_the_known_nodes(change: Change, tmp_path: Path) -> None:
    file = inventory(tmp_path, node("node-a"), node("node-b", ready=False))
    slow = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}
    sides = [asking("50m", "64Mi", image=f"registry.example.com/agent:{tag}") for tag in (1, 2)]
    for side in sides:
        side["spec"] |= slow
    change.of({"a.json": sides[0]}, {"a.json": sides[1]})
    text = change.check("--snapshot", file).stdout
    assert (
        "does not end: 1 node: node-b not ready and maxUnavailable 1; 2 nodes: node-a, node-b "
        "would wait for a new pod indefinitely\n" in text
    )
    (group,) = change.report("--snapshot", file)["changes"]
    assert group["changes"][0]["rehearsal"]["notReady"] == ["node-b"]
    assert group["changes"][0]["rehearsal"]["waiting"] == ["node-a", "node-b"]
    well = inventory(tmp_path, *(node(f"node-{number}") for number in range(3)))
    assert (
        "takes about 105 s in 3 steps, at most 1 node at once without it, if a pod takes 30 s to "
        "start and 5 s to stop" in change.check("--snapshot", well).stdout
    )
    (group,) = change.report("--snapshot", well)["changes"]
    assert group["changes"][0]["rehearsal"]["steps"] == 3


def reading(name: str) -> dict[str, Any]:
    return asking("50m", "64Mi", volumes=[{"name": "config", "configMap": {"name": name}}])


def test_configuration_under_another_name_restarts_pods_and_prevents_a_rollback(
    change: Change,
) -> None:
    change.of(
        {"a.json": reading("settings-1"), "c.json": config_map("settings-1", "logging", a="1")},
        {"a.json": reading("settings-2"), "c.json": config_map("settings-2", "logging", a="2")},
    )
    text = change.check().stdout
    assert "restarts for its configuration: ConfigMap settings-1 -> settings-2\n" in text
    assert (
        "way back: the running pods need ConfigMap logging/settings-1, which this change "
        "removes" in text
    )
    (group,) = change.report()["changes"]
    (agent,) = (one for one in group["changes"] if one["object"]["kind"] == "DaemonSet")
    assert agent["back"]["possible"] is False


def test_configuration_that_keeps_its_name_restarts_nothing(change: Change) -> None:
    change.of(
        {"a.json": reading("settings"), "c.json": config_map("settings", "logging", a="1")},
        {"c.json": config_map("settings", "logging", a="2")},
    )
    assert "read by DaemonSet logging/agent: no pod restarts for it" in change.check().stdout


def live(body: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "uid": "u1"}, "spec": {**body["spec"], **spec}}


def applied(body: dict[str, Any]) -> dict[str, Any]:
    """The object after an apply of gitops-ds, which leaves its marks on it."""
    fields = {"f:metadata": {"f:annotations": {"f:gitops-ds.io/commit": {}}}}
    manager = {
        "manager": "gitops-ds",
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    metadata = {
        **body["metadata"],
        "annotations": {"gitops-ds.io/commit": "1501c2e"},
        "managedFields": [manager],
    }
    return {**body, "metadata": metadata}


def revision(number: int, body: dict[str, Any]) -> dict[str, Any]:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "agent",
        "uid": "u1",
        "controller": True,
    }
    template = {**body["spec"]["template"], "$patch": "replace"}
    metadata = {"name": f"agent-{number}", "namespace": "logging", "ownerReferences": [owner]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata,
        "revision": number,
        "data": {"spec": {"template": template}},
    }


def test_the_rollback_target_is_a_revision_of_the_cluster(change: Change, tmp_path: Path) -> None:
    sides = [asking("50m", "64Mi", image=f"registry.example.com/agent:{tag}") for tag in (1, 2, 3)]
    change.of({"a.json": sides[1]}, {"a.json": sides[2]})
    file = inventory(
        tmp_path, node("node-a"), live(sides[1]), revision(6, sides[0]), revision(7, sides[1])
    )
    text = change.check("--snapshot", file).stdout
    assert "new revision 8\n" in text
    assert "way back: a revert restores revision 7, as revision 9\n" in text


@pytest.mark.slow
def test_drift_is_shown_next_to_the_change_and_does_not_affect_the_verdict(
    change: Change, tmp_path: Path
) -> None:
    base = asking("50m", "64Mi")
    change.of({"a.json": base}, {"a.json": asking("60m", "64Mi")})
    by_hand = live(
        base, updateStrategy={"rollingUpdate": {"maxUnavailable": "50%"}}, minReadySeconds=9
    )  # of which the base is silent
    file = inventory(tmp_path, node("node-a"), by_hand)
    result = change.check("--snapshot", file)
    beside = result.stdout.split("Beside the change, the cluster differs from the base")[1]
    assert "DaemonSet logging/agent" in beside
    assert 'spec.updateStrategy.rollingUpdate.maxUnavailable: "50%" -> "10%"' in beside
    assert "minReadySeconds" not in beside
    assert result.return_value == 0
    report = change.report("--snapshot", file)
    assert [field["live"] for field in report["drift"][0]["objects"][0]["fields"]] == ["50%"]
    assert not [finding for finding in report["findings"] if finding["rule"] == "DS708"]
    assert "differs from the base" in change.check("--snapshot", file, "-o", "markdown").stdout
    same = inventory(tmp_path, node("node-a"), applied(base), name="same.json")
    assert change.report("--snapshot", same)["drift"] == []
    assert "drift" not in change.report()


def test_an_inventory_can_be_that_of_one_cluster(change: Change, tmp_path: Path) -> None:
    clusters = dict.fromkeys(("clusters/eu.yaml", "clusters/us.yaml"), CLUSTER)
    change.of(
        {**SETTINGS, **clusters, AGENT: asking("50m", "64Mi")}, {AGENT: asking("60m", "64Mi")}
    )
    report = change.report("--snapshot", f"eu={inventory(tmp_path, node('node-a'))}")
    assert [(one["cluster"], one["source"], one["count"]) for one in report["nodes"]] == [
        ("eu", "inventory", 1),
        ("us", "none", 0),
    ]
    text = change.check("--snapshot", f"eu={inventory(tmp_path, node('node-a'))}").stdout
    assert (
        "note: no nodes of us are known (no cluster snapshot, no pools): rules over nodes were "
        "skipped\n" in text
    )


def test_a_pool_of_unknown_size_is_named(change: Change) -> None:
    change.of(
        {
            **SETTINGS,
            "clusters/eu.yaml": POOLS.replace(", nodes: 6", ""),
            AGENT: asking("50m", "64Mi"),
        },
        {"README.md": "x"},
    )
    assert (
        "note: no nodes of eu are known (pool small without `nodes:`): rules over nodes were "
        "skipped\n" in change.check().stdout
    )


def test_agents_that_request_what_no_pool_declares_are_named(change: Change) -> None:
    head = asking("50m", "64Mi", nodeSelector={"disk": "ssd"})
    change.of({**SETTINGS, "clusters/eu.yaml": POOLS, AGENT: asking("50m", "64Mi")}, {AGENT: head})
    text = change.check().stdout
    assert (
        "note: agent: no pool declares the labels of their selectors, so their nodes are unknown\n"
        in text
    )
    assert "DS604" not in text
    assert "loses" not in text


def test_later_commits_of_the_base_are_not_part_of_the_change(change: Change) -> None:
    change.of({"a.json": asking("50m", "64Mi")}, {"a.json": asking("60m", "64Mi")})
    change.upstream.git("checkout", "--quiet", "main")
    change.upstream.commit({"other.json": json.dumps(daemonset("other"))})
    change.upstream.git("checkout", "--quiet", "change")
    (group,) = change.report()["changes"]
    (one,) = group["changes"]
    assert (one["operation"], one["object"]["name"]) == ("update", "agent")
    assert one["rollout"] == {"from": 1, "to": 2, "knownAs": None, "restarts": []}


def test_a_change_without_effect_has_no_changes(change: Change) -> None:
    change.of({"a.json": asking("50m", "64Mi")}, {"README.md": "words"})
    assert change.report()["changes"] == []


def test_rules_evaluate_the_change(change: Change) -> None:
    head = asking("50m", "64Mi")
    labels = head["spec"]["template"]["metadata"]["labels"] = {"app": "else"}
    head["spec"]["selector"]["matchLabels"] = labels
    change.of({"a.json": asking("50m", "64Mi")}, {"a.json": head})
    errors = [one for one in change.report()["findings"] if one["severity"] == "error"]
    assert [one["rule"] for one in errors] == ["DS103"]
    assert invoked("check", change.upstream.path).return_value == 0


def test_a_base_that_does_not_exist_is_reported(change: Change) -> None:
    change.upstream.commit({"a.json": json.dumps(daemonset())})
    error = invoked("check", change.upstream.path, "--base", "nowhere").exception
    assert isinstance(error, RevisionUnknown)
    assert "nowhere" in str(error)


def test_clusters_with_the_same_change_are_reported_together(change: Change) -> None:
    clusters = dict.fromkeys(("clusters/a.yaml", "clusters/b.yaml"), CLUSTER)
    change.of(
        {**SETTINGS, **clusters, AGENT: asking("50m", "64Mi")}, {AGENT: asking("60m", "64Mi")}
    )
    assert [group["clusters"] for group in change.report()["changes"]] == [["a", "b"]]
    assert [group["clusters"] for group in change.report("--cluster", "b")["changes"]] == [["b"]]
