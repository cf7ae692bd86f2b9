"""What each command writes, to a real API server, to Git and to files, beside a rollout in progress
whose service has ended: the table of commands is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitops_ds.cli.command_table import COMMANDS, Writes
from tests import controlplane
from tests.cluster import program
from tests.cluster.program import PROGRAM, Desk
from tests.plan.world import daemonset
from tests.service.test_service import until

pytestmark = [pytest.mark.slow, pytest.mark.controlplane]
WRITES = frozenset(("create", "update", "patch", "delete", "deletecollection"))
POLICY = {
    "stages": [
        {"name": "canary", "nodes": {"count": 1}, "soak": "15s"},
        {"name": "second", "nodes": {"count": 1}, "soak": "1s"},
        {"name": "rest", "approval": {"from": ["team"]}},
    ],
    "onFailure": {"revert": {"how": "none"}},
}
# The kinds in the repository: those of `*` in the table.
IN_GIT = frozenset(("daemonsets", "controllerrevisions"))
WATCHED = 8  # seconds for a command that ends with Ctrl-C

# The command lines of each command; `COMMIT` is the one whose rollout is in progress. Commands that
# write follow the others, in this order.
LINES: Mapping[str, Sequence[str]] = {
    "demo": ["demo --speed 1000"],
    "init": ["init ../new"],
    "adopt": ["adopt ../adopted"],
    "doctor": ["doctor"],
    "check": ["check", "check --live", "check --base HEAD~1", "check -o json=../report.json"],
    "render": ["render"],
    "explain": ["explain agent", "explain agent --node node-000"],
    "comment": [
        (
            "comment --report ../report.json --dry-run --forge gitea --project a/b --number 1 "
            "--url https://git.example.com --sha COMMIT"
        )
    ],
    "snapshot": ["snapshot"],
    "plan": ["plan", "plan --revision COMMIT"],
    "diff": ["diff"],
    "wait": ["wait ds/agent --timeout 20s", "wait ds/agent --commit COMMIT --timeout 8s"],
    "get": ["get", "get nodes", "get -w"],
    "status": ["status ds/agent --nodes", "status ds/agent -w"],
    "sources": ["sources"],
    "events": ["events", "events -w"],
    "history": ["history ds/agent", "history ds/agent --diff 1 1"],
    "trace": ["trace node/node-000", "trace ds/agent", "trace commit/COMMIT"],
    "drift": ["drift"],
    "rollback": ["rollback ds/agent --to-revision 1"],
    "restart": ["restart ds/agent"],
    "support-dump": ["support-dump --file ../dump.tgz"],
    "completion": ["completion bash"],
    "version": ["version"],
    "help": ["help plan"],
    "reconcile": ["reconcile"],
    "suspend": ["suspend", "suspend ds/agent"],
    "resume": ["resume", "resume ds/agent"],
    "hold": ["hold COMMIT"],
    "release": ["release COMMIT"],
    "approve": ["approve ds/agent rest", "approve 97dfe9b512e3b06c-12"],
    "apply": ["apply --dry-run", "apply --revision COMMIT~1 --force-local"],
    "run": ["run -C ../origin.git --interval 1s --powers pace"],
    "uninstall": ["uninstall --dry-run", "uninstall --yes"],
}
ENDLESS = frozenset(("get -w", "status ds/agent -w", "events -w", LINES["run"][0]))
NEGATIVE = frozenset(("wait", "check"))  # they exit with 1


@dataclass
class Seen:
    """What the lines of a command wrote: the resources in the cluster, and files."""

    resources: set[str]
    files: set[str]
    failure: str = ""  # of a line that must succeed


@dataclass
class Beside:
    """A user's machine beside a cluster with a rollout in progress that no service continues."""

    plane: controlplane.ControlPlane
    desk: Desk
    commit: str = ""

    def write(self, line: str) -> Seen:
        """What a command line wrote."""
        before, since = self._files(), self.plane.audit_log.stat().st_size
        words, failure = line.replace("COMMIT", self.commit).split(), ""
        if line in ENDLESS:
            self._run_for_a_while(words, since)
        else:
            ended = self.desk.run_program(*words)
            if ended.code > (words[0] in NEGATIVE):
                failure = f"exit code {ended.code}: {ended.err}"
        self.plane.read("default", "daemonsets", "last-request")  # the log has all earlier ones
        after = self._files()
        changed = {name for name in before.keys() | after if before.get(name) != after.get(name)}
        return Seen(self._written(since), changed, failure)

    def _run_for_a_while(self, words: Sequence[str], since: int) -> None:
        """For WATCHED seconds, of a command that writes after its first write."""
        environment = {**self.desk.environment, "KUBECONFIG": str(self.plane.kubeconfig)}
        log = self.desk.directory.parent / "endless.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                (PROGRAM, *words),
                cwd=self.desk.tree,
                env=environment,
                stdout=stream,
                stderr=stream,
            )
        try:
            if COMMANDS[words[0]].writes.cluster:
                until(lambda: bool(self._written(since)), log.read_text)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WATCHED)
        finally:
            process.kill()
            process.wait()

    def _written(self, since: int) -> set[str]:
        """The resources of the writes of the program, without dry runs and access reviews."""
        with self.plane.audit_log.open("rb") as log:
            log.seek(since)
            return {one for line in log if (one := written(json.loads(line)))}

    def _files(self) -> dict[str, str]:
        """All files of the machine, with a digest of each."""
        paths = [path for path in self.desk.directory.rglob("*") if path.is_file()]
        digests = (hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
        names = (str(path.relative_to(self.desk.directory)) for path in paths)
        return dict(zip(names, digests, strict=True))


def written(entry: Mapping[str, object]) -> str:
    """The resource of a write of the program in a line of the audit log; empty for all others."""
    about = entry.get("objectRef")
    if not isinstance(about, dict) or entry["verb"] not in WRITES:
        return ""
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(str(entry["requestURI"])).query)
    is_ours = str(entry.get("userAgent", "")).startswith("gitops-ds/")
    is_review = about.get("apiGroup") in ("authentication.k8s.io", "authorization.k8s.io")
    return "" if not is_ours or is_review or "dryRun" in query else str(about["resource"])


def undeclared(seen: Seen, declared: Writes) -> set[str]:
    """What the table does not have."""
    kinds = declared.cluster.keys() | (IN_GIT if "*" in declared.cluster else set())
    wrong = {f"cluster: {resource}" for resource in seen.resources - kinds}
    wrong |= {seen.failure} - {""}
    for name in seen.files:
        top, _, rest = name.partition("/")
        folder = rest.partition("/")[0]
        match top:
            case "cache":
                is_declared = folder in declared.cache
            case "origin.git":
                is_declared = bool(declared.git)
            case _:
                is_declared = bool(declared.files)
        if not is_declared:
            wrong.add(f"file: {name}")
    return wrong


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    """After the kill of a service whose rollout has updated one node of three."""
    options = controlplane.Wanted(
        nodes=3,
        pod_ready_milliseconds=100,
        pod_delete_milliseconds=controlplane.POD_DELETE_MILLISECONDS,
        audit=True,
    )
    plane = controlplane.ControlPlane(tmp_path / "plane", options)
    try:
        plane.start()
        desk = program.desk(tmp_path / "desk", plane.kubeconfig)
        (tmp_path / "desk/tmp").mkdir()
        desk.environment["TMPDIR"] = str(tmp_path / "desk/tmp")
        yield _stopped(Beside(plane, desk))
    finally:
        plane.stop()


def _stopped(beside: Beside) -> Beside:
    desk, plane = beside.desk, beside.plane
    desk.write("gitops-ds.yaml", "version: v1\n")
    desk.write("agents/agent/rollout.yaml", POLICY)

    def on(tag: str) -> int:
        images = (pod["spec"]["containers"][0]["image"] for pod in plane.items("default", "pods"))
        return sum(image == f"agent:{tag}" for image in images)

    def push(tag: str) -> str:
        desk.write("agents/agent/daemonset.json", daemonset("agent", f"agent:{tag}", "default"))
        return desk.commit(f"Agent {tag}")

    other = daemonset("other", "other:1", "default")  # for `adopt`
    plane.request("POST", "/apis/apps/v1/namespaces/default/daemonsets", other)
    push("1")
    log = desk.directory.parent / "service.log"
    environment = {**desk.environment, "KUBECONFIG": str(plane.kubeconfig)}
    with log.open("wb") as stream:
        service = subprocess.Popen(
            (PROGRAM, *LINES["run"][0].split()),
            cwd=desk.tree,
            env=environment,
            stdout=stream,
            stderr=stream,
        )
    try:
        until(lambda: on("1") == 3, log.read_text)
        until(lambda: len(plane.items("gitops-ds", "configmaps")) > 1, log.read_text)
        beside.commit = push("2")
        until(lambda: on("2") > 0, log.read_text)
    finally:
        service.kill()
        service.wait()
    return beside


def test_every_command_is_in_the_test() -> None:
    assert set(LINES) == set(COMMANDS)
    readers = [name for name in LINES if not COMMANDS[name].writes.cluster]
    assert list(LINES)[: len(readers)] == readers, "they are run on what no command has changed"


def test_each_command_writes_what_its_row_names(beside: Beside) -> None:
    wrong: dict[str, set[str]] = {}
    idle: set[str] = set()
    for name, lines in LINES.items():
        declared = COMMANDS[name].writes
        resources: set[str] = set()
        for line in lines:
            seen = beside.write(line)
            resources |= seen.resources
            if surplus := undeclared(seen, declared):
                wrong[line] = surplus
        if declared.cluster and not resources:
            idle.add(name)
    assert wrong == {}
    assert idle == set(), "rows with an entry for the cluster to which nothing was written"
