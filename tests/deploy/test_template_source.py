"""Templates in ConfigMaps and Secrets of the simulated cluster: watched, rolled out, handed over to
Git and back.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from gitops_ds.controller.controller import Controller
from gitops_ds.core import errors, names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events import deployer
from gitops_ds.core.events.base import Event
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, POD, SECRET, Body, Key, Resource
from gitops_ds.core.redaction.events import RedactingEmit
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import state_store
from gitops_ds.deploy.object_claims import Claims, Rank
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.deploy.templates.template_selector import TemplateSelector
from gitops_ds.deploy.templates.template_source import Templates
from gitops_ds.notify import log_lines
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.ownership.own_objects import OwnAccount
from gitops_ds.ownership.permissions import AllowList
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import NodeSpec, virtual_time
from tests.deploy.test_loop import History

PRUNING = ApplyOptions(
    Guards(prune=True, share=1.0),
    patience=0.0,
    allowed=AllowList(own=OwnAccount(frozenset({"gitops-ds"}))),
)
SECRET_IMAGE = "registry.example.com/hush-hush"


def agent(name: str = "agent", image: str = "agent:1", namespace: str = "") -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return f"""\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: {name}{where}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers: [{{name: {name}, image: "{image}"}}]
"""


@dataclass
class Scene:
    cluster: simulator.SimulatedCluster
    people: simulator.Client
    client: simulator.Client
    events: list[Event]
    git: History
    loops: list[deployer_loop.Loop] = field(default_factory=list)

    async def put(
        self,
        name: str,
        keys: dict[str, str],
        *,
        namespace: str = "default",
        kind: Resource = CONFIG_MAP,
    ) -> None:
        """As `kubectl apply` of an object with templates."""
        held = (
            {key: base64.b64encode(text.encode()).decode() for key, text in keys.items()}
            if kind == SECRET
            else keys
        )
        metadata = {"name": name, "namespace": namespace, "labels": {names.TEMPLATE: "true"}}
        body = {"apiVersion": "v1", "kind": kind.kind, "metadata": metadata, "data": held}
        await self.people.apply(kind, body, manager="kubectl", force=True)
        await asyncio.sleep(3)  # no request: the watch causes it

    async def drop(self, name: str, namespace: str = "default") -> None:
        await self.people.delete(CONFIG_MAP, namespace, name)
        await asyncio.sleep(3)

    async def push(self, text: str) -> None:
        """A commit that the schedule finds."""
        self.git.push(text)
        self.loops[-1].request()
        await asyncio.sleep(5)

    async def daemonset(self, name: str = "agent", namespace: str = "default") -> Body | None:
        try:
            return await self.people.get(DAEMONSET, namespace, name)
        except errors.NotFound:
            return None

    async def image(self, name: str = "agent", namespace: str = "default") -> str:
        body = await self.daemonset(name, namespace)
        return str(body["spec"]["template"]["spec"]["containers"][0]["image"]) if body else ""

    async def annotation(self, name: str, of: str = "agent") -> str:
        body = await self.daemonset(of)
        return str(((body or {}).get("metadata") or {}).get("annotations", {}).get(name, ""))

    async def owner(self, name: str = "agent") -> str:
        body = await self.daemonset(name)
        return str(
            ((body or {}).get("metadata") or {}).get("labels", {}).get(names.OWNER_LABEL, "")
        )

    async def version(self, name: str) -> str:
        return str(
            (await self.people.get(CONFIG_MAP, "default", name))["metadata"]["resourceVersion"]
        )

    async def pods(self) -> set[str]:
        return {str(pod["metadata"]["uid"]) for pod in (await self.people.list(POD)).items}

    @property
    def guards(self) -> list[tuple[str, str]]:
        """The reasons of skipped changes, with their objects."""
        refusals = (
            record.refusal for record in self.events if isinstance(record, deployer.ChangeSkipped)
        )
        return [(refusal.reason, str(refusal.key)) for refusal in refusals]

    @property
    def log(self) -> str:
        return "\n".join(filter(None, map(log_lines.line, self.events)))


def play(
    script: Callable[[Scene], Awaitable[None]],
    *,
    options: ApplyOptions = PRUNING,
    chosen: TemplateSelector = TemplateSelector(namespaces=("*",)),  # noqa: B008  frozen
    beside_git: bool = False,
) -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            cluster.add_nodes(NodeSpec(f"node-{n}") for n in range(3))
            scene = Scene(cluster, cluster.client("kubectl"), cluster.client(), [], History())
            chance = random.Random(1).random
            controller = Controller(
                cluster.client(),
                Powers.FULL,
                lambda _: None,
                clock=cluster.server.now,
                chance=chance,
            )
            claims = Claims({Rank.GIT: int(beside_git), Rank.TEMPLATES: 1})
            templates = begin(scene, claims, options, chosen)
            if beside_git:
                scene.git.push(agent("other"))
                scene.loops.append(following(scene, claims, options))
            parts: list[Controller | deployer_loop.Loop] = [controller, *scene.loops]
            running = [asyncio.create_task(part.run()) for part in parts]
            await asyncio.sleep(5)
            await script(scene)
            for part in parts:
                part.stop()
            templates.stop()
            await asyncio.gather(*running)

    virtual_time.run(main())


def begin(
    scene: Scene, claims: Claims, options: ApplyOptions, chosen: TemplateSelector
) -> Templates:
    clock, chance = scene.cluster.server.now, random.Random(2).random
    emit = RedactingEmit(scene.events.append)
    source = Templates(scene.client, chosen, emit, clock)
    place = DeployTarget(scene.client, "gitops-ds", chosen.owner, "templates")
    loop = deployer_loop.Loop(
        source.as_source(), place, options, emit, deployer_loop.LoopTiming(5.0, clock, chance)
    )
    loop.reconciler.join(claims, Rank.TEMPLATES)
    source.begin(loop.reconciler.request_soon, chance)
    scene.loops.append(loop)
    return source


def following(scene: Scene, claims: Claims, options: ApplyOptions) -> deployer_loop.Loop:
    place = DeployTarget(scene.cluster.client(), "gitops-ds", "fleet", "memory")
    source = scene.git.source(namespace="default")
    timing = deployer_loop.LoopTiming(5.0, scene.cluster.server.now, random.Random(3).random)
    loop = deployer_loop.Loop(source, place, options, scene.events.append, timing)
    loop.reconciler.join(claims, Rank.GIT)
    return loop


async def test_a_new_or_changed_template_is_rolled_out_with_the_version_of_its_object(
    scene: Scene, /
) -> None:
    await scene.put("agents", {"agent.yaml": agent()})
    assert await scene.image() == "agent:1"
    first = await scene.version("agents")
    assert await scene.annotation(names.COMMIT) == f"configmap/default/agents@{first}"
    assert await scene.annotation(names.PATH) == "configmap/default/agents/agent.yaml"
    assert await scene.annotation(names.CHANGE_CAUSE) == "ConfigMap default/agents, key agent.yaml"
    held = await scene.people.get(CONFIG_MAP, "default", "agents")
    assert await scene.annotation(names.TEMPLATE_UID) == held["metadata"]["uid"]

    await scene.put("agents", {"agent.yaml": agent(image="agent:2")})
    assert await scene.image() == "agent:2"
    known = (await state_store.load(scene.cluster, "gitops-ds", "templates-in-cluster")).commits[
        key()
    ]
    second = await scene.version("agents")
    assert set(known.values()) == {
        f"configmap/default/agents@{first}",
        f"configmap/default/agents@{second}",
    }

    writes = scene.client.count.of("apply", "daemonsets")
    await scene.put("agents", {"agent.yaml": "# only a comment\n" + agent(image="agent:2")})
    assert scene.client.count.of("apply", "daemonsets") == writes
    assert await scene.annotation(names.COMMIT) == f"configmap/default/agents@{second}"
    assert "templates in the cluster: configmap/default/agents changed" in scene.log


def key(name: str = "agent", namespace: str = "default") -> Key:
    return Key("apps", "DaemonSet", namespace, name)


async def test_several_keys_documents_and_objects_are_read_and_other_content_is_skipped(
    scene: Scene, /
) -> None:
    items = "apiVersion: v1\nkind: List\nitems:\n- " + agent("c").replace("\n", "\n  ").rstrip()
    await scene.put(
        "one",
        {
            "a": agent("a"),
            "several": f"{agent('b')}---\n{agent('b2')}",
            "notes": "kind words: none",
            "x.y": ":",
        },
    )
    await scene.put("two", {"list.yaml": items, "values.json": "{}"}, kind=SECRET)
    objects = [body["metadata"]["name"] for body in (await scene.people.list(DAEMONSET)).items]
    assert sorted(objects) == ["a", "b", "b2", "c"]
    assert not scene.guards


async def test_an_object_with_a_mistake_is_quarantined_alone(scene: Scene, /) -> None:
    await scene.put("good", {"agent.yaml": agent("good")})
    await scene.put("bad", {"agent": agent("bad"), "more.yaml": agent("bad-too")})
    before = await scene.pods()
    await scene.put(
        "bad", {"agent": agent("bad", "agent:2").replace("image:", "\n        imagee:")}
    )
    await scene.put("good", {"agent.yaml": agent("good", "agent:2")})
    assert [await scene.image(name) for name in ("good", "bad", "bad-too")] == [
        "agent:2",
        "agent:1",
        "agent:1",
    ]
    assert "configmap/default/bad is not applied: configmap/default/bad/agent:10:9: " in scene.log
    assert scene.log.count("configmap/default/bad is not applied") == 1
    assert ("quarantined", "DaemonSet default/bad") in scene.guards
    await asyncio.sleep(60)
    assert len(before & await scene.pods()) == 6

    await scene.put("bad", {"agent": agent("bad", "agent:3")})
    assert [await scene.image("bad"), await scene.image("bad-too")] == ["agent:3", ""]


async def test_objects_removed_from_the_templates_are_deleted_but_for_the_last(
    scene: Scene, /
) -> None:
    await scene.put("a", {"a": agent("a")})
    await scene.put("b", {"b": agent("b")})
    await scene.drop("a")
    assert [await scene.image("a"), await scene.image("b")] == ["", "agent:1"]
    await scene.drop("b")
    assert await scene.image("b") == "agent:1"
    assert any(
        isinstance(event, deployer.Reconciled) and event.refusals[:1] for event in scene.events
    )


async def test_of_two_templates_for_one_object_the_older_one_counts_and_the_other_is_reported(
    scene: Scene, /
) -> None:
    await scene.put("z-older", {"a": agent(image="older:1")})
    await scene.put("a-younger", {"a": agent(image="younger:1")})
    assert await scene.image() == "older:1"
    assert scene.guards == [("named-twice", "DaemonSet default/agent")]
    await scene.drop("z-older")
    assert await scene.image() == "younger:1"


@pytest.mark.play(beside_git=True)
async def test_git_has_precedence_and_an_object_changes_its_source_without_losing_a_pod(
    scene: Scene, /
) -> None:
    await scene.put("agents", {"agent": agent()})
    await asyncio.sleep(20)
    before = await scene.pods()
    assert (await scene.owner(), len(before)) == ("templates-in-cluster", 6)

    await scene.push(agent("other") + "---\n" + agent())
    assert await scene.owner() == "fleet"
    assert ("named-in-git", "DaemonSet default/agent") in scene.guards
    await scene.put("agents", {"agent": agent(image="agent:2")})
    assert (await scene.image(), await scene.owner()) == ("agent:1", "fleet")
    await scene.put("agents", {"agent": agent()})

    await scene.push(agent("other"))
    assert await scene.owner() == "templates-in-cluster"
    assert (
        await scene.annotation(names.COMMIT)
        == f"configmap/default/agents@{await scene.version('agents')}"
    )
    await asyncio.sleep(20)
    assert await scene.pods() == before

    await scene.drop("agents")
    # the last one: an empty render deletes nothing
    assert await scene.owner() == "templates-in-cluster"
    assert await scene.owner("other") == "fleet"


@pytest.mark.play(beside_git=True)
async def test_templates_never_delete_objects_of_git_and_an_object_without_a_source_is_deleted(
    scene: Scene, /
) -> None:
    await scene.put("agents", {"agent": agent(), "more": agent("more")})
    await scene.push(agent("other") + "---\n" + agent(image="git:1"))
    await scene.put("agents", {"more": agent("more")})
    assert (await scene.image(), await scene.owner()) == ("git:1", "fleet")
    await scene.push(agent("other"))
    assert await scene.image() == ""  # no source defines it any longer


async def test_a_template_names_only_objects_of_its_own_namespace_unless_it_is_in_the_services_own(
    scene: Scene, /
) -> None:
    role = (
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "
        "all}\nrules: []\n"
    )
    await scene.put(
        "a", {"a": agent("far", namespace="kube-system"), "b": agent("near"), "c": role}
    )
    assert [await scene.image("far", "kube-system"), await scene.image("near")] == [
        "",
        "agent:1",
    ]
    assert sorted(scene.guards) == [
        ("not-allowed", "ClusterRole all"),
        ("not-allowed", "DaemonSet kube-system/far"),
    ]
    await scene.put("trusted", {"a": agent("far", namespace="kube-system")}, namespace="gitops-ds")
    assert await scene.image("far", "kube-system") == "agent:1"
    await scene.put("b", {"a": agent("own", namespace="gitops-ds")}, namespace="gitops-ds")
    assert await scene.image("own", "gitops-ds") == ""
    assert ("not-allowed", "DaemonSet gitops-ds/own") in scene.guards


@pytest.mark.play(chosen=TemplateSelector())
async def test_only_chosen_objects_count(scene: Scene, /) -> None:
    await scene.put("a", {"a": agent("a")})
    await scene.put("b", {"b": agent("b", namespace="default")}, namespace="gitops-ds")
    assert [await scene.image("a"), await scene.image("b")] == ["", "agent:1"]


async def test_no_value_of_a_secret_is_reported(scene: Scene, /) -> None:
    await scene.put("hidden", {"agent": agent(image=f"{SECRET_IMAGE}:1")}, kind=SECRET)
    await scene.put("hidden", {"agent": agent(image=f"{SECRET_IMAGE}:2")}, kind=SECRET)
    assert await scene.image() == f"{SECRET_IMAGE}:2"
    assert await scene.annotation(names.CHANGE_CAUSE) == "Secret default/hidden, key agent"
    bad = agent(image=f"{SECRET_IMAGE}:3").replace(
        "containers:", f"hostNetwork: {SECRET_IMAGE}\n      containers:"
    )
    await scene.put("hidden", {"agent": bad}, kind=SECRET)
    assert "secret/default/hidden is not applied: secret/default/hidden/agent:9:" in scene.log
    # What the API server refuses, in words that quote it.
    await scene.put(
        "hidden",
        {
            "agent": agent(image=f"{SECRET_IMAGE}:4").replace(
                "app: agent}}\n  t", "app: hush-hush}}\n  t"
            )
        },
        kind=SECRET,
    )
    assert "hush-hush" not in repr(scene.events)
    assert "hush-hush" not in scene.log


async def test_keys_that_are_not_text_are_reported_and_skipped(scene: Scene, /) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default", "labels": {names.TEMPLATE: "true"}},
        "data": {"agent": agent()},
        "binaryData": {"other.yaml": base64.b64encode(b"\xff\xfe").decode()},
    }
    await scene.people.create(CONFIG_MAP, body)
    await asyncio.sleep(3)
    assert await scene.image() == "agent:1"
    assert "configmap/default/a/other.yaml is omitted: templates must be text" in scene.log


def requests(scene: Scene) -> int:
    """Without watches and the heartbeat of the status."""
    count = scene.client.count
    written = count.by["apply", "configmaps"]
    heartbeats = (
        written + count.by["get", "configmaps"] + min(written, count.by["list", "configmaps"])
    )
    return count.total - count.of("watch") - heartbeats


async def test_unchanged_templates_cost_no_request(scene: Scene, /) -> None:
    await scene.put("agents", {"agent": agent()})
    await asyncio.sleep(30)
    before = requests(scene)
    await asyncio.sleep(600)
    assert requests(scene) == before
