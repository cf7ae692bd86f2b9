"""Attacks of a repository on the cluster and the service: each attempt is refused and published,
and the rest is applied.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

import pytest

from gitops_ds.core import names
from gitops_ds.core.events import deployer
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, SECRET
from gitops_ds.deploy import state_store
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.plan import printers
from gitops_ds.kube.apimachinery import builtin_resources
from gitops_ds.notify import log_lines
from gitops_ds.notify.kube_events import EventRecorder, InvolvedObject
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.ownership.own_objects import OwnAccount
from gitops_ds.ownership.permissions import AllowList
from tests.deploy import test_loop
from tests.deploy.test_loop import History, Scene
from tests.deploy.test_template_source import agent

HUSH = "hush-hush-4711"
SECRET_IN_GIT = f"""\
apiVersion: v1
kind: Secret
metadata: {{name: login, namespace: default}}
data: {{password: {base64.b64encode(HUSH.encode()).decode()}}}
stringData: {{user: {HUSH}}}
"""
ASKED = ApplyOptions(
    Guards(prune=True, share=1.0),
    patience=0.0,
    allowed=AllowList(own=OwnAccount(frozenset({"gitops-ds"}))),
)
_BINDINGS = builtin_resources.RESOURCES["rbac.authorization.k8s.io", "ClusterRoleBinding"]
STATE = InvolvedObject("v1", "ConfigMap", "gitops-ds", "gitops-ds-test")


def play(script: Callable[[Scene], Awaitable[None]], text: str) -> None:
    """A service that follows a repository with these files and an honest agent."""

    async def whole(scene: Scene) -> None:
        await scene.settle()
        scene.history.push(f"{agent('honest', 'honest:2', 'default')}---\n{text}")
        await scene.settle()
        await script(scene)
        body = await scene.cluster.get(DAEMONSET, "default", "honest")
        assert body["spec"]["template"]["spec"]["containers"][0]["image"] == "honest:2"

    test_loop.play(whole, ASKED, History([agent("honest", namespace="default")], 0))


def withheld(scene: Scene) -> list[tuple[str, str]]:
    refusals = (
        record.refusal for record in scene.events if isinstance(record, deployer.ChangeSkipped)
    )
    return [(refusal.reason, str(refusal.key)) for refusal in refusals]


@pytest.mark.play(SECRET_IN_GIT)
async def test_a_secret_in_git_is_applied_and_shown_nowhere_and_warned_about(
    scene: Scene, /
) -> None:
    encoded = base64.b64encode(HUSH.encode()).decode()
    held = await scene.cluster.get(SECRET, "default", "login")
    assert held["data"]["password"] == encoded
    changed = SECRET_IN_GIT.replace(encoded, base64.b64encode(b"hush-hush-4712").decode())
    scene.history.push(f"{agent('honest', 'honest:2', 'default')}---\n{changed}")
    await scene.settle()
    reporter = EventRecorder(STATE)
    outputs: list[object] = [
        event for record in scene.events for event in reporter.kube_events(record)
    ]
    for record in scene.events:
        outputs += [log_lines.line(record), log_lines.as_json(record)]
        if isinstance(record, deployer.Planned):
            outputs += [
                printers.as_text(record.plan),
                printers.as_markdown(record.plan),
                printers.as_json(record.plan),
            ]
    shown = "\n".join(map(str, outputs))
    assert "Secret default/login" in shown
    assert "hush-hush" not in shown
    assert encoded[:8] not in shown
    findings = prepare.prepare(await scene.history.snapshot(await scene.history.tip())).findings
    about = [
        finding
        for finding in findings
        if finding.object is not None and finding.object.kind == "Secret"
    ]
    assert about
    assert "hush-hush" not in "".join(finding.message for finding in about)


@pytest.mark.parametrize(
    ("head", "rest", "key"),
    [
        ("v1/Namespace", "metadata: {name: gitops-ds}", "Namespace gitops-ds"),
        (
            "v1/ConfigMap",
            "metadata: {name: gitops-ds-test, namespace: gitops-ds}",
            "ConfigMap gitops-ds/gitops-ds-test",
        ),
        (
            "v1/ConfigMap",
            "metadata: {name: settings, namespace: gitops-ds}",
            "ConfigMap gitops-ds/settings",
        ),
        (
            "coordination.k8s.io/v1/Lease",
            "metadata: {name: gitops-ds, namespace: gitops-ds}",
            "Lease gitops-ds/gitops-ds",
        ),
        (
            "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
            (
                "metadata: {name: gitops-ds-pace}\nroleRef: {apiGroup: rbac.authorization.k8s.io, "
                "kind: ClusterRole, name: all}"
            ),
            "ClusterRoleBinding gitops-ds-pace",
        ),
        (
            "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
            (
                "metadata: {name: agents}\nroleRef: {apiGroup: rbac.authorization.k8s.io, "
                "kind: ClusterRole, name: cluster-admin}\n"
                "subjects: [{kind: ServiceAccount, name: gitops-ds, namespace: gitops-ds}]"
            ),
            "ClusterRoleBinding agents",
        ),
        (
            "rbac.authorization.k8s.io/v1/ClusterRole",
            'metadata: {name: agents, labels: {gitops-ds.io/aggregate-to-objects: "true"}}',
            "ClusterRole agents",
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1/FlowSchema",
            (
                "metadata: {name: agents}\nspec: {priorityLevelConfiguration: {name: catch-all}, "
                "rules: [{subjects: [{kind: Group, group: {name: 'system:serviceaccounts'}}], "
                "resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], "
                "namespaces: ['*']}]}]}"
            ),
            "FlowSchema agents",
        ),
        (
            "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding",
            (
                "metadata: {name: agents}\n"
                "spec: {policyName: gitops-ds-startup-taints, validationActions: [Audit]}"
            ),
            "ValidatingAdmissionPolicyBinding agents",
        ),
    ],
)
def test_objects_that_the_service_needs_are_protected(head: str, rest: str, key: str) -> None:
    version, _, kind = head.rpartition("/")

    async def script(scene: Scene) -> None:
        assert withheld(scene) == [("not-allowed", key)]
        state = await state_store.load(scene.cluster, "gitops-ds", "test")
        assert key not in {str(one) for one in state.inventory}
        assert state.last_good != state.last_attempted  # the agent is shown as out of sync

    play(script, f"apiVersion: {version}\nkind: {kind}\n{rest}\n")


BINDING = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agents}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, name: ada, apiGroup: rbac.authorization.k8s.io}]
"""


@pytest.mark.play(BINDING)
async def test_an_object_that_concerns_the_service_in_the_cluster_is_neither_changed_nor_deleted(
    scene: Scene, /
) -> None:
    own = {"kind": "ServiceAccount", "name": "gitops-ds", "namespace": "gitops-ds"}
    await scene.cluster.patch(_BINDINGS, "", "agents", {"subjects": [own]})
    for text in (BINDING.replace("ada", "bob"), ""):
        scene.history.push(f"{agent('honest', 'honest:2', 'default')}---\n{text}")
        await scene.settle()
        body = await scene.cluster.get(_BINDINGS, "", "agents")
        assert body["subjects"] == [own]
    assert set(withheld(scene)) == {("not-allowed", "ClusterRoleBinding agents")}


@pytest.mark.play(agent("reader", namespace="gitops-ds"))
async def test_a_reader_of_the_services_credentials_is_not_started_in_its_namespace(
    scene: Scene, /
) -> None:
    assert withheld(scene) == [("not-allowed", "DaemonSet gitops-ds/reader")]


def test_a_forged_owner_is_overwritten_and_objects_of_others_stay_theirs() -> None:
    async def script(scene: Scene) -> None:
        forged = await scene.cluster.get(CONFIG_MAP, "default", "forged")
        assert forged["metadata"]["labels"][names.OWNER_LABEL] == "test"
        theirs = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "theirs"}}
        labels = {names.OWNER_LABEL: "another"}
        await scene.cluster.create(
            CONFIG_MAP,
            {**theirs, "metadata": {"name": "theirs", "namespace": "default", "labels": labels}},
        )
        metadata = {"name": "theirs", "namespace": "default", "labels": labels}
        mine = f"{theirs | {'data': {'a': 'mine'}, 'metadata': metadata}}"
        scene.history.push(f"{agent('honest', 'honest:2', 'default')}---\n{mine}")
        await scene.settle()
        assert ("owned-by-other", "ConfigMap default/theirs") in withheld(scene)
        assert (await scene.cluster.get(CONFIG_MAP, "default", "theirs"))["data"] == {"a": "theirs"}

    labels = f"{{{names.OWNER_LABEL}: kube-system}}"
    play(
        script,
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: forged, namespace: default, labels: "
        f"{labels}}}\n",
    )
