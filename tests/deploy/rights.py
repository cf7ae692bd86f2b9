"""What the service's account was granted beside what it used, by the API server's own audit log.

Add a scene to test_rights.py when the service makes a request of a new kind, and its right to deploy/powers/.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import controlplane, gitservers

PROGRAM = Path(sys.executable).parent / "gitops-ds"
ACCOUNT = "system:serviceaccount:gitops-ds:gitops-ds"
NAMESPACE = "gitops-ds"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource (`daemonsets/status`) of an API group, in one namespace or (empty) in all."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}" + (f" in {self.namespace}" if self.namespace else "")


# Asked by the API server itself while it answers another request, so that no line of the audit log is theirs: each beside the
# request that is refused without it. The control plane of the tests runs the plugins that ask.
IMPLIED: Mapping[Right, Right] = {
    # OwnerReferencesPermissionEnforcement, for a pod whose owner reference blocks its owner's deletion.
    Right("update", "apps", "daemonsets/finalizers"): Right("create", "", "pods"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The requests that were refused for want of rights, and the rights that no request needed."""

    refused: tuple[str, ...]
    unused: tuple[Right, ...]


def judge(plane: controlplane.ControlPlane) -> Outcome:
    """What the account did on this control plane so far, beside what it may do now."""
    given = granted(plane)
    needed: set[Right] = set()
    refused: list[str] = []
    for told in _requests(plane.audit_log):
        if told.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
            refused.append(f"{told['verb']} {told['requestURI']}")
        for right in _asked(told):
            narrow = Right(right.verb, right.group, right.resource)
            needed |= {right} if right in given else {narrow}
    needed |= {implied for implied, shown in IMPLIED.items() if shown in needed}
    return Outcome(tuple(sorted(set(refused))), tuple(sorted(given - needed)))


def granted(plane: controlplane.ControlPlane) -> frozenset[Right]:
    """All that bindings give to the account, with the roles as the cluster has them."""

    def listed(kind: str) -> list[dict[str, Any]]:
        return list(json.loads(plane.kubectl("get", kind, "--all-namespaces", "-o", "json"))["items"])

    roles = {
        (role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"]): role.get("rules") or ()
        for role in (*listed("roles"), *listed("clusterroles"))
    }
    found = set()
    for binding in (*listed("rolebindings"), *listed("clusterrolebindings")):
        if any(who.get("name") == "gitops-ds" and who.get("namespace") == NAMESPACE for who in binding.get("subjects") or ()):
            space, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
            for rule in roles[role["kind"], space if role["kind"] == "Role" else "", role["name"]]:
                found |= {
                    Right(verb, group, resource, space)
                    for verb in rule["verbs"]
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                }
    return frozenset(found)


def _requests(log: Path) -> Iterator[dict[str, Any]]:
    """The account's requests for resources, each once."""
    for line in log.read_text().splitlines():
        told = json.loads(line)
        if told["user"].get("username") == ACCOUNT and told["stage"] in ("ResponseComplete", "ResponseStarted"):
            yield told


def _asked(told: Mapping[str, Any]) -> Iterator[Right]:
    """The rights that a request took."""
    what = told.get("objectRef")
    if what is None:
        return
    if "impersonatedUser" in told:
        name = told["impersonatedUser"]["username"]
        account = name.removeprefix("system:serviceaccount:")
        yield (
            Right("impersonate", "", "users")
            if account == name
            else Right("impersonate", "", "serviceaccounts", account.split(":")[0])
        )
        return
    resource = what["resource"] + (f"/{what['subresource']}" if "subresource" in what else "")
    yield Right(told["verb"], what.get("apiGroup", ""), resource, what.get("namespace", ""))
    if told["verb"] == "patch" and told.get("responseStatus", {}).get("code") == 201:  # a server-side apply that creates
        yield Right("create", what.get("apiGroup", ""), resource, what.get("namespace", ""))


def kubeconfig(plane: controlplane.ControlPlane, directory: Path) -> Path:
    """A kubeconfig with nothing but a token of the account."""
    token = plane.kubectl("-n", NAMESPACE, "create", "token", "gitops-ds").strip()
    file = directory / "service.kubeconfig"
    told = json.loads(plane.kubeconfig.read_text())
    told["users"] = [{"name": "admin", "user": {"token": token}}]
    file.write_text(json.dumps(told))
    return file


@contextlib.contextmanager
def service(plane: controlplane.ControlPlane, directory: Path, power: str, settings: str) -> Iterator[Callable[[], str]]:
    """The installed program under the account alone; gives what it logged so far."""
    directory.mkdir(parents=True, exist_ok=True)
    log, file = directory / "log", directory / "settings.yaml"
    file.write_text(settings)
    words = (PROGRAM, "run", "--settings", file, "--powers", power, "--kubeconfig", kubeconfig(plane, directory))
    environment = {
        **gitservers.GIT_ENVIRONMENT,
        "GITOPS_DS_CACHE": str(directory / "cache"),
        "POD_NAMESPACE": NAMESPACE,
        "POD_NAME": "a",
    }
    with log.open("wb") as stream:
        process = subprocess.Popen(words, stderr=stream, stdout=stream, env=environment)
    try:
        yield log.read_text
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()
