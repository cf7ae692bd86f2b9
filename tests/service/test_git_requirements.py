"""The required agents in Git, as the controller gets them from the deployers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from gitops_ds.model import names
from gitops_ds.model.objects import Digest, Key
from gitops_ds.model.sources.bundle import Manifest, Origin, Pointer
from gitops_ds.service.assembly import GitRequirements
from gitops_ds.service.runnable import DeployerPart
from tests.plan.world import daemonset


@dataclass
class Loop:
    manifests: dict[Key, Manifest] = field(default_factory=dict)
    cluster: str | None = "alpha"


@dataclass
class Deployer:
    loop: Loop | None = None
    was_applied: bool = False
    unready: str = ""


def manifest(name: str, annotations: dict[str, str]) -> tuple[Key, Manifest]:
    body: dict[str, Any] = daemonset(name, "agent:1", "agents")
    body["metadata"]["annotations"] = annotations
    key = Key("apps", "DaemonSet", "agents", name)
    return key, Manifest(key, body, Digest(""), Origin(Pointer("a.yaml", 0, ())))


def requirements(*deployers: Deployer) -> GitRequirements:
    return GitRequirements(lambda: cast("list[DeployerPart]", list(deployers)))


def wanted(git: GitRequirements) -> list[str]:
    return [body["metadata"]["name"] for body in git.wanted()]


def test_every_repository_must_have_been_applied_once() -> None:
    assert requirements().applied()
    assert not requirements(Deployer(was_applied=True), Deployer()).applied()
    assert requirements(Deployer(was_applied=True)).applied()


def test_after_a_restart_the_commit_must_be_read_again_if_git_can_be_reached() -> None:
    unread = Loop(cluster=None)
    reads = "first reconciliation is incomplete"
    assert not requirements(Deployer(None, was_applied=True, unready=reads)).applied()
    assert not requirements(Deployer(unread, was_applied=True, unready=reads)).applied()
    assert requirements(Deployer(unread, was_applied=True)).applied()
    assert requirements(Deployer(None, was_applied=True)).applied()
    assert requirements(Deployer(Loop(), was_applied=True, unready=reads)).applied()


def test_the_required_daemonsets_of_all_repositories_are_wanted() -> None:
    required = {names.REQUIRED_FOR_WORK: "true"}
    one = Loop(dict([manifest("a", required), manifest("b", {names.REQUIRED_FOR_WORK: "false"})]))
    git = requirements(Deployer(one), Deployer(), Deployer(Loop(dict([manifest("c", required)]))))
    assert wanted(git) == ["a", "c"]
    assert git.wanted() is git.wanted()
    one.manifests = dict([manifest("d", required)])
    assert wanted(git) == ["d", "c"]
