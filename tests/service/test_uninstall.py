"""After `uninstall` none of our objects is left on the cluster, and no pod was restarted."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.cli.uninstall import handover
from gitops_ds.core import errors, startup_taints
from gitops_ds.core.objects import LEASE, NAMESPACE, NODE
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests import controlplane, gitservers
from tests.cluster.program import Ended, in_this_process
from tests.plan.world import daemonset

_numbers = itertools.count()


def program(plane: controlplane.ControlPlane, state: str, *words: str | Path) -> Ended:
    where = ("--kubeconfig", plane.kubeconfig, "--state-namespace", state)
    return in_this_process((*words, *where), Path.cwd(), gitservers.GIT_ENVIRONMENT)


def commit_all(directory: Path, message: str) -> None:
    """Makes a repository of a directory, with one commit of all its files."""
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", message)):
        subprocess.run(
            ("git", "-c", "user.name=D", "-c", "user.email=d@example.com", *words),
            cwd=directory,
            check=True,
        )


def names_left(plane: controlplane.ControlPlane, state: str) -> list[str]:
    """The names of our kinds of objects in the namespace of the service."""
    items = json.loads(
        plane.kubectl("-n", state, "get", "configmaps,leases,daemonsets", "-o", "json")
    )["items"]
    names = [item["metadata"]["name"] for item in items]
    return [name for name in names if name != "kube-root-ca.crt"]


def forget_the_state(plane: controlplane.ControlPlane, state: str, space: str, owner: str) -> None:
    """Deletes the state, as with the namespace of the service: without --owner nothing is handed
    back.
    """
    plane.kubectl("-n", state, "delete", "configmaps", "--all")
    left = program(plane, state, "uninstall", "--yes")
    assert left.out.startswith("0 objects handed back")
    assert f"DaemonSet {space}/agent is kept" in left.err
    assert f"--owner {owner}" in left.err


@pytest.mark.controlplane
@pytest.mark.parametrize("remembered", [True, False])
def test_uninstall_leaves_none_of_our_objects_and_restarts_no_pod(
    tmp_path: Path, control_plane: controlplane.ControlPlane, remembered: bool
) -> None:
    state, space = (f"uninstall-{next(_numbers)}" for _ in range(2))
    plane = control_plane
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    (fleet / "agent.json").write_text(
        json.dumps(daemonset("agent", "registry.example.com/agent:1", space))
    )
    (fleet / "settings.yaml").write_text(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings, namespace: "
        f"{space}}}\ndata: {{a: b}}\n"
    )
    commit_all(fleet, "One agent")
    plane.kubectl("create", "namespace", space)
    applied = program(plane, state, "apply", "-C", fleet, "--wait")
    assert applied.code == 0, applied.err

    def look(*what: str) -> Any:
        return json.loads(
            plane.kubectl("-n", space, "get", *what, "-o", "json", "--show-managed-fields")
        )

    plane.kubectl("-n", state, "create", "configmap", "gitops-ds.news")
    before = look("daemonset", "agent"), {pod["metadata"]["uid"] for pod in look("pods")["items"]}
    dry_run = program(plane, state, "uninstall", "--dry-run", "-o", "json")
    assert json.loads(dry_run.out)["handedBack"] == 0
    assert look("daemonset", "agent") == before[0]

    refused = program(plane, state, "uninstall")
    assert (refused.code, refused.out) == (2, ""), refused.err
    of: tuple[str, ...] = ()
    if not remembered:
        of = ("--owner", before[0]["metadata"]["labels"]["gitops-ds.io/owner"])
        forget_the_state(plane, state, space, of[1])
    done = program(plane, state, "uninstall", "--yes", *of)
    assert done.code == 0, done.err
    assert done.out.startswith("2 objects handed back")

    after = look("daemonset", "agent")
    assert "gitops-ds" not in json.dumps(after["metadata"])
    assert "gitops-ds" not in json.dumps(look("configmap", "settings")["metadata"])
    assert "gitops-ds" not in json.dumps(
        [one["metadata"] for one in look("controllerrevisions")["items"]]
    )
    assert after["metadata"]["generation"] == before[0]["metadata"]["generation"]
    assert after["spec"] == before[0]["spec"]
    assert {pod["metadata"]["uid"] for pod in look("pods")["items"]} == before[1]
    assert names_left(plane, state) == []

    # A later apply with kubectl has no conflict, and a second uninstall hands back nothing.
    plane.kubectl("apply", "--server-side", "-f", str(fleet / "agent.json"))
    assert program(plane, state, "uninstall", "--yes").out.startswith("0 objects handed back")


async def test_a_service_that_renews_its_lease_has_to_be_stopped_first() -> None:
    async with simulator.SimulatedCluster() as cluster:
        await cluster.create(
            NAMESPACE,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gitops-ds"}},
        )
        lease = {
            "apiVersion": LEASE.api_version,
            "kind": "Lease",
            "metadata": {"namespace": "gitops-ds", "name": "gitops-ds"},
        }

        async def renew(times: int) -> None:
            for _ in range(times):
                now = timestamps.micros(virtual_time.clock()())
                spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 10, "renewTime": now}
                await cluster.apply(LEASE, {**lease, "spec": spec}, manager="gitops-ds")
                await asyncio.sleep(2)

        await renew(1)
        await handover.must_be_stopped(cluster, "gitops-ds")  # its holder is gone
        renewing = asyncio.create_task(renew(20))
        with pytest.raises(
            errors.Refused, match=r"pod-1 holds the lease gitops-ds/gitops-ds.*scale deployment"
        ):
            await handover.must_be_stopped(cluster, "gitops-ds")
        renewing.cancel()


async def test_nodes_that_keep_the_startup_taint_are_named_with_the_command() -> None:
    async with simulator.SimulatedCluster() as cluster:
        cluster.add_nodes(simulator.NodeSpec(name) for name in ("node-1", "node-2", "node-3"))
        for name in ("node-3", "node-1"):
            taints = [{"key": startup_taints.OWN.key, "effect": "NoSchedule"}]
            await cluster.patch(NODE, "", name, {"spec": {"taints": taints}})
        found = await handover.read(cluster, "gitops-ds", "")
        assert found.tainted == ("node-1", "node-3")
        command = "kubectl taint node node-1 node-3 gitops-ds.io/agents-not-ready-"
        assert found.taint_advice.endswith(command)


@pytest.mark.controlplane
def test_several_owners_are_handed_back_only_on_request(
    control_plane: controlplane.ControlPlane, tmp_path: Path
) -> None:
    plane, state = control_plane, f"uninstall-{next(_numbers)}"
    for name in ("one", "two"):
        fleet = tmp_path / name
        fleet.mkdir()
        (fleet / "agent.json").write_text(json.dumps(daemonset(f"several-{name}")))
        commit_all(fleet, "One agent")
        applied = program(plane, state, "apply", "-C", fleet)
        assert applied.code == 0, applied.err
    refused = program(plane, state, "uninstall", "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert "several repositories own objects here: choose one with --owner" in refused.err
    done = program(plane, state, "uninstall", "--yes", "--all")
    assert (done.code, done.out.split(";")[0]) == (0, "2 objects handed back")
    assert "remaining: the label app.kubernetes.io/managed-by" in done.err
