"""Compares the permissions of the service's account with those that it used, by the API server's
audit log.

Add a scene to scenes.py when the service sends a request of a new kind, and its permission to
deploy/powers/ or deploy/rights/.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gitops_ds.core.values import replace
from tests import controlplane, gitservers
from tests import installation as deploy
from tests.service.test_service import until

PROGRAM = Path(sys.executable).parent / "gitops-ds"
ACCOUNT = "system:serviceaccount:gitops-ds:gitops-ds"
NAMESPACE = "gitops-ds"
PATIENCE = 120.0
_GROUP = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource (`daemonsets/status`) of an API group, in one namespace or (empty) in
    all; with a name of that alone.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}" + (f" in {self.namespace}" if self.namespace else "")


_RBAC = "rbac.authorization.k8s.io"
# Asked by the API server itself while it answers another request, so that no line of the audit log
# is theirs: each beside the request that is refused without it. The control plane of the tests runs
# the plugins that ask.
IMPLIED: Mapping[Right, Right] = {
    # OwnerReferencesPermissionEnforcement, for a pod whose owner reference blocks its owner's
    # deletion.
    Right("update", "apps", "daemonsets/finalizers"): Right("create", "", "pods"),
    # A role with rights that the account itself has not got, and a binding to one.
    **{
        Right("escalate", _RBAC, roles): Right("create", _RBAC, roles)
        for roles in ("roles", "clusterroles")
    },
    Right("bind", _RBAC, "roles"): Right("create", _RBAC, "rolebindings"),
    Right("bind", _RBAC, "clusterroles"): Right("create", _RBAC, "clusterrolebindings"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The requests that were refused for missing permissions, and the permissions that no request
    needed.
    """

    refused: tuple[str, ...]
    unused: tuple[Right, ...]

    def __str__(self) -> str:
        return (
            f"refused: {', '.join(self.refused) or 'none'}; unused: "
            f"{', '.join(map(str, self.unused)) or 'none'}"
        )


NOTHING_AMISS = Outcome((), ())
# The beginnings of the names that no test creates, by the path of their resource.
_OF_THE_PLANE = {
    "/api/v1/namespaces": ("default", "kube-", NAMESPACE),
    "/apis/scheduling.k8s.io/v1/priorityclasses": ("system-",),
}
# The contents of a Namespace that was removed from Git: the guard that keeps it names the kinds
# that the account must not list, until an approval.
_CONTENTS = re.compile(r"list /apis?/.*/namespaces/fleet/\w+\?limit=500$")


def judge(
    plane: controlplane.ControlPlane, since: int, but: frozenset[Right] = frozenset()
) -> Outcome:
    """Compares the requests of the account since that length of the audit log with its present
    permissions; those in `but` may be unused.
    """
    granted_rights = granted(plane)
    refused: list[str] = []
    requests = list(_requests(plane.audit_log, since))
    for request in requests:
        is_ending = "being terminated" in request["responseStatus"].get("message", "")
        if (
            _code(request) == 403
            and not is_ending
            and not _CONTENTS.match(f"{request['verb']} {request['requestURI']}")
        ):
            refused.append(f"{request['verb']} {request['requestURI']}")
    unused = granted_rights - but - _needed(requests, granted_rights)
    return Outcome(tuple(sorted(set(refused))), tuple(sorted(unused)))


def used_by(
    plane: controlplane.ControlPlane, scenes: Mapping[str, int], end: int
) -> Mapping[Right, str]:
    """The scene that used each permission first, by the length of the audit log at its begin."""
    granted_rights = granted(plane)
    ends = [*list(scenes.values())[1:], end]
    found: dict[Right, str] = {}
    for (scene, begin), after in zip(scenes.items(), ends, strict=True):
        requests = list(_requests(plane.audit_log, begin, after))
        for right in _needed(requests, granted_rights) & granted_rights:
            found.setdefault(right, scene)
    return found


def _needed(requests: Iterable[Mapping[str, Any]], granted_rights: frozenset[Right]) -> set[Right]:
    needed: set[Right] = set()
    for request in requests:
        for right in _required(request):
            narrow = Right(right.verb, right.group, right.resource)
            needed |= {right} if right in granted_rights else {narrow}
            needed |= {
                one for one in granted_rights if one.name and replace(one, name="") == narrow
            }
    return needed | {implied for implied, shown in IMPLIED.items() if shown in needed}


def granted(plane: controlplane.ControlPlane) -> frozenset[Right]:
    """The permissions of the account by bindings, with the roles in the cluster."""

    def listed(plural: str) -> list[dict[str, Any]]:
        return list(plane.request("GET", f"{_GROUP}/{plural}")["items"])

    roles = {
        (kind, role["metadata"].get("namespace", ""), role["metadata"]["name"]): role.get("rules")
        or ()
        for kind, plural in (("Role", "roles"), ("ClusterRole", "clusterroles"))
        for role in listed(plural)
    }
    result = set()
    for binding in (*listed("rolebindings"), *listed("clusterrolebindings")):
        if any(
            who.get("name") == "gitops-ds" and who.get("namespace") == NAMESPACE
            for who in binding.get("subjects") or ()
        ):
            space, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
            for rule in roles.get(
                (role["kind"], space if role["kind"] == "Role" else "", role["name"]), ()
            ):
                result |= {
                    Right(verb, group, resource, space, name)
                    for name in rule.get("resourceNames") or [""]
                    for verb in rule["verbs"]
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                }
    return frozenset(result)


def _requests(log: Path, since: int, end: int = sys.maxsize) -> Iterator[dict[str, Any]]:
    """The account's requests for resources, each once, of this part of the log."""
    with log.open("rb") as stream:
        stream.seek(since)
        for line in stream:
            since += len(line)
            if since > end:
                return
            if ACCOUNT.encode() not in line:
                continue
            request = json.loads(line)
            if request["user"].get("username") == ACCOUNT and request["stage"] in (
                "ResponseComplete",
                "ResponseStarted",
            ):
                yield request


def _code(request: Mapping[str, Any]) -> int:
    return int(request.get("responseStatus", {}).get("code", 0))


def _required(request: Mapping[str, Any]) -> Iterator[Right]:
    """The permissions for a request."""
    what = request.get("objectRef")
    if what is None:
        return
    if "impersonatedUser" in request:
        name = request["impersonatedUser"]["username"]
        account = name.removeprefix("system:serviceaccount:")
        yield (
            Right("impersonate", "", "users")
            if account == name
            else Right("impersonate", "", "serviceaccounts", account.split(":")[0])
        )
        return
    resource = what["resource"] + (f"/{what['subresource']}" if "subresource" in what else "")
    yield Right(request["verb"], what.get("apiGroup", ""), resource, what.get("namespace", ""))
    if request["verb"] == "patch" and _code(request) == 201:  # a server-side apply that creates
        yield Right("create", what.get("apiGroup", ""), resource, what.get("namespace", ""))


def installed(
    plane: controlplane.ControlPlane, directory: Path, power: str, *components: str
) -> int:
    """deploy/ with the power, its rights in force; the length of the audit log then.

    Its own pods only appear to run here, so they use none of the observed rights.
    """
    deploy.apply(plane, deploy.overlay(directory, power, "log: {format: text}\n", *components))
    until(lambda: _gathered(plane), lambda: "the rights were not gathered", PATIENCE)
    in_force(plane)
    return plane.audit_log.stat().st_size


def bound(plane: controlplane.ControlPlane, space: str, role: str) -> int:
    """Binds a ClusterRole of deploy/ in a namespace, as documented; the length of the audit log
    when it is in force.
    """
    plane.kubectl(
        "-n",
        space,
        "create",
        "rolebinding",
        f"{role}-too",
        "--clusterrole",
        role,
        "--serviceaccount=gitops-ds:gitops-ds",
    )
    in_force(plane)
    return plane.audit_log.stat().st_size


def _gathered(plane: controlplane.ControlPlane) -> bool:
    """Whether the role of all objects has the rules of those that are to be gathered."""
    roles = plane.request("GET", f"{_GROUP}/clusterroles")["items"]
    parts = [
        role["rules"]
        for role in roles
        if "gitops-ds.io/aggregate-to-objects" in (role["metadata"].get("labels") or {})
    ]
    whole = [
        role.get("rules") or [] for role in roles if role["metadata"]["name"] == "gitops-ds-objects"
    ]
    return all(
        sorted(map(str, rules)) == sorted(str(rule) for part in parts for rule in part)
        for rules in whole
    )


def in_force(plane: controlplane.ControlPlane) -> None:
    """Returns when the authorizer, which follows roles by a watch, knows all that is granted."""
    for right in granted(plane):
        until(partial(_allowed, plane, right), partial(str, right), PATIENCE)


def _allowed(plane: controlplane.ControlPlane, right: Right) -> bool:
    resource, _, sub = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": sub,
        "namespace": right.namespace,
    }
    attributes["name"] = right.name
    group = "authorization.k8s.io/v1"
    review = {
        "apiVersion": group,
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": attributes},
    }
    return bool(
        plane.request("POST", f"/apis/{group}/subjectaccessreviews", review)["status"]["allowed"]
    )


def removed(plane: controlplane.ControlPlane) -> None:
    """Deletes the objects of `installed`, the service and the test, except the namespace of the
    service, so that tests do not depend on earlier ones.
    """
    plane.kubectl(
        "-n",
        NAMESPACE,
        "delete",
        "--ignore-not-found",
        "--all",
        "roles,rolebindings,leases,configmaps,secrets,daemonsets",
    )
    admission = "/apis/admissionregistration.k8s.io/v1"
    for group, plural in (
        (_GROUP, "clusterrolebindings"),
        (_GROUP, "clusterroles"),
        (admission, "validatingadmissionpolicybindings"),
        (admission, "validatingadmissionpolicies"),
    ):
        items = plane.request("GET", f"{group}/{plural}")["items"]
        if ours := [item["metadata"]["name"] for item in items if _is_ours(item)]:
            plane.kubectl("delete", "--ignore-not-found", plural, *ours)
    for path, kept in _OF_THE_PLANE.items():
        names = {one["metadata"]["name"] for one in plane.request("GET", path)["items"]}
        if left := [name for name in sorted(names) if not name.startswith(kept)]:
            plane.kubectl("delete", "--ignore-not-found", path.rpartition("/")[2], *left)


def _is_ours(body: Mapping[str, Any]) -> bool:
    return str(body["metadata"]["name"]).startswith("gitops-ds")


def kubeconfig(plane: controlplane.ControlPlane, directory: Path) -> Path:
    """A kubeconfig with nothing but a token of the account."""
    token = plane.kubectl("-n", NAMESPACE, "create", "token", "gitops-ds").strip()
    file = directory / "service.kubeconfig"
    config = json.loads(plane.kubeconfig.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    file.write_text(json.dumps(config))
    return file


@dataclass(frozen=True, slots=True)
class Replicas:
    """The installed program under the account alone, as many processes as requested."""

    processes: Mapping[Path, subprocess.Popen[bytes]]

    def log(self) -> str:
        """The log of all replicas so far."""
        return "".join(log.read_text() for log in self.processes)

    def wait_for_log(self, words: str, times: int = 1) -> None:
        """Waits until the log has these words that many times."""
        until(
            lambda: self.log().count(words) >= times,
            lambda: f"{words} was not logged:\n{self.log()[-3000:]}",
            PATIENCE,
        )

    def stop_the_leader(self) -> None:
        """Ends it as the kubelet does, and waits until another leads."""
        leads = [
            log
            for log in self.processes
            if log.read_text().count("became leader") > log.read_text().count("lost leadership")
        ]
        (leader,) = [log for log in leads if self.processes[log].poll() is None]
        before = self.log().count("became leader")
        self.processes[leader].terminate()
        assert self.processes[leader].wait(30) == 0
        self.wait_for_log("became leader", before + 1)


@contextlib.contextmanager
def service(
    plane: controlplane.ControlPlane,
    directory: Path,
    power: str,
    settings: Mapping[str, Any],
    replicas: int = 2,
) -> Iterator[Replicas]:
    """The service with an election, its replicas next to each other."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "settings.yaml"
    file.write_text(
        json.dumps({"log": {"format": "text"}, "election": {"enabled": True}, **settings})
    )
    words = (
        PROGRAM,
        "run",
        "--settings",
        file,
        "--powers",
        power,
        "--kubeconfig",
        kubeconfig(plane, directory),
    )
    processes = {}
    for number in range(replicas):
        log = directory / f"{number}.log"
        environment = {
            **gitservers.GIT_ENVIRONMENT,
            "GITOPS_DS_CACHE": str(directory / f"cache{number}"),
            "POD_NAMESPACE": NAMESPACE,
            "POD_NAME": f"gitops-ds-{number}",
        }
        with log.open("wb") as stream:
            processes[log] = subprocess.Popen(words, stderr=stream, stdout=stream, env=environment)
    try:
        found = Replicas(processes)
        found.wait_for_log("became leader")
        yield found
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            try:
                process.wait(30)
            finally:
                process.kill()
                process.wait()


def doctor(directory: Path) -> dict[str, str]:
    """The verdicts of `doctor` about the rights of a service that ran in this directory, by
    purpose.
    """
    words = (
        PROGRAM,
        "doctor",
        "--settings",
        directory / "settings.yaml",
        "--kubeconfig",
        directory / "service.kubeconfig",
    )
    environment = {**gitservers.GIT_ENVIRONMENT, "GITOPS_DS_CACHE": str(directory / "cache0")}
    ended = subprocess.run(
        (*words, "-o", "json"), env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    checks = json.loads(ended.stdout)["checks"]
    return {
        check["name"]: check["verdict"] for check in checks if check["name"].startswith("rights")
    }
