"""A plan as people and programs read it; the goldens are the contract."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.cli.snapshot import cluster_snapshot
from gitops_ds.core import names
from gitops_ds.core.change import Plan
from gitops_ds.core.redaction import patterns
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.plan import planner, printers
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import ApplyOptions, Guards, PlanContext
from tests import goldens, schemas
from tests.plan import world
from tests.plan.world import config_map, daemonset

HERE = Path(__file__).parent


def owned(body: dict[str, Any], uid: str, owner: str = "test") -> dict[str, Any]:
    """The object as a cluster holds it."""
    made: dict[str, Any] = defaults.defaulted(body)
    made["metadata"] = {**body["metadata"], "uid": uid, "labels": {names.OWNER_LABEL: owner}}
    return made


def revision(of: dict[str, Any], number: int, image: str) -> dict[str, Any]:
    template = copy.deepcopy(of["spec"]["template"])
    template["spec"]["containers"][0]["image"] = image
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": of["metadata"]["name"],
        "uid": of["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{of['metadata']['name']}-{number}",
            "namespace": "default",
            "labels": {names.REVISION_HASH: f"hash{number}"},
            "ownerReferences": [owner],
        },
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }


def node(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {},
    }


def planned(subject: str = "A change", image: str = "agent:3") -> Plan:
    back, fresh, deleted = (
        owned(daemonset(name, "agent:2"), name) for name in ("back", "fresh", "leaving")
    )
    neighbour = owned(daemonset("neighbour"), "neighbour", "another repository")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": "default"},
        "data": {"a": "b2xk"},
    }
    revisions = [
        revision(back, 1, "agent:1"),
        revision(back, 2, "agent:2"),
        revision(fresh, 2, "agent:2"),
    ]
    nodes = [
        node("linux-0", os="linux"),
        node("linux-1", os="linux"),
        node("windows-0", os="windows"),
    ]
    live = cluster_snapshot.assemble(
        [back, fresh, deleted, neighbour, owned(secret, "secret"), *revisions, *nodes]
    )
    files = {
        "back.yaml": daemonset("back", "agent:1"),
        "fresh.yaml": daemonset(
            "fresh",
            nodeSelector={"os": "linux"},
            containers=[
                {"name": "agent", "image": image, "env": [{"name": "API_TOKEN", "value": "s3cret"}]}
            ],
        ),
        "new.yaml": [daemonset("new"), config_map("settings", a="`1` | 2")],
        "secret.yaml": {**secret, "data": {"a": "bmV3"}},
    }
    bundle = prepare.prepare(world.snapshot(files, subject)).bundle
    stamp = Stamp("test", "https://git.example.com/fleet.git", str(bundle.commit), subject)
    return planner.plan(
        bundle,
        live,
        PlanContext(stamp, ApplyOptions(Guards(prune=True)), inventory=live.objects.keys()),
    )


def test_a_plan_as_text() -> None:
    goldens.check(HERE / "plan.txt", printers.as_text(planned()))


def test_a_plan_as_markdown() -> None:
    goldens.check(HERE / "plan.md", printers.as_markdown(planned()))


def test_a_plan_as_json() -> None:
    document = printers.as_json(planned())
    schemas.check(document, "plan")
    goldens.check(HERE / "plan.json", json.dumps(document, indent=2) + "\n")


@pytest.mark.parametrize(
    "form",
    [printers.as_text, printers.as_markdown, lambda plan: json.dumps(printers.as_json(plan))],
)
def test_no_form_shows_a_secret(form: Any) -> None:
    text = form(planned())
    assert patterns.HIDDEN in text
    assert [word for word in ("s3cret", "b2xk", "bmV3") if word in text] == []


def test_the_hash_identifies_the_result_of_a_plan_and_not_its_commit() -> None:
    assert planned().hash == planned("Another commit").hash
    assert planned().hash != planned(image="agent:4").hash
