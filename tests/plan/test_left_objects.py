"""Objects that left Git: listed contents, nodes that lose an agent, objects
that are collected by use, and ConfigMaps in use.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.live import Contents, Live, Node, Revision
from gitops_ds.core.objects import Key
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import deletions, planner
from gitops_ds.deploy.plan.deletions import Leaving
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import ApplyOptions, Guards, OtherOwners, PlanContext, Policy
from gitops_ds.rollouts.state import keys
from tests.staging.staged_objects import KEY, bundle, manifest

SPACE, OTHER_SPACE = Key("", "Namespace", "", "infra"), Key("", "Namespace", "", "other")
DEFINITION = Key("apiextensions.k8s.io", "CustomResourceDefinition", "", "probes.example.com")
CONFIG = Key("", "ConfigMap", "infra", "agent")
ENDING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
PRUNING = PlanContext(Stamp("test"), ApplyOptions(Guards(prune=True)))
NOTHING = bundle()


def there(key: Key, body: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """One of our objects in the cluster."""
    labels = {names.OWNER_LABEL: "test", **metadata.pop("labels", {})}
    found = {"name": key.name, "labels": labels, **metadata}
    return {**(body or {}), "kind": key.kind, "metadata": found}


def agent(key: Key = KEY) -> dict[str, Any]:
    return there(key, dict(manifest("1", key).body))


def of(objects: dict[Key, dict[str, Any]], git: Bundle = NOTHING, **live: Any) -> Any:
    context = replace(PRUNING, inventory=frozenset(objects))
    return deletions.of(git, Live(objects, **live), context)


@pytest.mark.parametrize(
    ("key", "policy", "metadata", "listed"),
    [
        (SPACE, Policy.CASCADE, {}, True),
        (DEFINITION, Policy.ORPHAN, {}, True),
        (SPACE, Policy.DISABLED, {}, False),
        (SPACE, Policy.CASCADE, ENDING, False),
        (CONFIG, Policy.CASCADE, {}, False),
        (CONFIG, Policy.DISABLED, {}, False),
    ],
)
def test_the_contents_of_containers_that_are_deleted_are_listed(
    key: Key, policy: Policy, metadata: dict[str, Any], listed: bool
) -> None:
    live, found = Live({key: there(key, **metadata)}), {key: Leaving(policy)}
    assert deletions.to_list(found, live, PRUNING) == ((key,) if listed else ())
    without = replace(PRUNING, options=ApplyOptions())
    assert deletions.to_list(found, live, without) == ()


def test_nothing_leaves_before_every_source_was_read() -> None:
    options = replace(PRUNING.options, other_owners=OtherOwners(complete=False))
    context = replace(PRUNING, options=options, inventory=frozenset({CONFIG}))
    found, refused = deletions.of(NOTHING, Live({CONFIG: there(CONFIG)}), context)
    assert found == {}
    ((only,),) = [refused]
    assert (only.reason.value, only.key) == ("waits", CONFIG)
    assert list(of({CONFIG: there(CONFIG)})[0]) == [CONFIG]


def test_a_namespace_takes_its_objects_and_their_agents_along() -> None:
    nodes = (Node("n2"), Node("n1"))
    objects = {SPACE: there(SPACE), KEY: agent(), CONFIG: there(CONFIG), OTHER_SPACE: there(SPACE)}
    found, _ = of(objects, nodes=nodes)
    assert found[SPACE] == Leaving(Policy.CASCADE, ("n1", "n2"), (CONFIG, KEY))
    assert found[KEY] == Leaving(Policy.CASCADE, ("n1", "n2"))
    assert found[CONFIG] == Leaving(Policy.CASCADE)
    assert found[OTHER_SPACE] == Leaving(Policy.CASCADE)
    listed = Contents({KEY: agent()}, ("pods",))
    found, _ = of(objects, nodes=nodes, contents={SPACE: listed})
    assert found[SPACE] == Leaving(Policy.CASCADE, ("n1", "n2"), (KEY,), ("pods",))
    objects[KEY]["metadata"]["annotations"] = {names.PRUNE: "orphan"}
    assert of(objects, nodes=nodes)[0][KEY] == Leaving(Policy.ORPHAN)
    assert of(objects)[0][SPACE].lost == ()


def test_an_approval_of_objects_of_others_is_for_its_plan_only() -> None:
    listed = Contents({KEY: agent(), CONFIG: there(CONFIG)})
    context = replace(PRUNING, inventory=frozenset({SPACE, CONFIG}))
    objects = {SPACE: there(SPACE), CONFIG: there(CONFIG)}
    cluster = Live(objects, contents={SPACE: listed})
    hash = planner.plan(NOTHING, cluster, context).hash
    approved = replace(context, options=replace(context.options, approved=hash))
    assert planner.plan(NOTHING, cluster, approved).approved == {CONFIG}


def test_a_definition_takes_the_objects_of_its_kind_along() -> None:
    probe = Key("example.com", "Probe", "infra", "a")
    spec: dict[str, Any] = {"spec": {"group": "example.com", "names": {"kind": "Probe"}}}
    objects = {DEFINITION: there(DEFINITION, spec), probe: there(probe), CONFIG: there(CONFIG)}
    leaving, _ = of(objects)
    assert leaving[DEFINITION].takes == (probe,)
    git = bundle(manifest("1", probe), manifest("1", CONFIG))
    found = {DEFINITION: leaving[DEFINITION], SPACE: Leaving(Policy.CASCADE)}
    live = Live({**objects, SPACE: there(SPACE)})
    assert deletions.in_use(found, git, live, PRUNING) == {
        DEFINITION: (probe,),
        SPACE: (CONFIG, probe),
    }


@pytest.mark.parametrize(
    ("path", "by", "kept"),
    [
        ("configmap/infra/source/a.yaml", "", True),
        ("configmap/infra/source/a.yaml", "configmap/infra/source", False),
        ("configmap/infra/source/a.yaml", "configmap/infra/other", True),
        ("configmap/infra/other/a.yaml", "", False),
        ("", "", False),
    ],
)
def test_objects_of_a_source_with_errors_stay(path: str, by: str, kept: bool) -> None:
    git = replace(NOTHING, kept=frozenset({"configmap/infra/source"}))
    body = there(CONFIG, annotations={names.PATH: path} if path else {})
    skipped = deletions.quarantined(CONFIG, body, git, by=by)
    assert (skipped is not None) is kept
    if not by:
        found, refused = of({CONFIG: body}, git)
        assert (found == {}, len(refused)) == (kept, int(kept))


@pytest.mark.parametrize(
    ("metadata", "ending", "orphaning"),
    [
        ({}, False, False),
        (ENDING, True, False),
        ({"finalizers": ["orphan"]}, False, False),
        ({**ENDING, "finalizers": ["orphan"]}, True, True),
        ({**ENDING, "finalizers": ["foregroundDeletion"]}, True, False),
    ],
)
def test_an_object_that_is_being_deleted(
    metadata: dict[str, Any], ending: bool, orphaning: bool
) -> None:
    assert deletions.is_ending({"metadata": metadata}) is ending
    assert deletions.is_orphaning({"metadata": metadata}) is orphaning


def test_content_named_config_maps_and_target_revisions_are_collected_by_use() -> None:
    def revision(name: str) -> Key:
        return Key("apps", "ControllerRevision", "infra", name)

    own, former, current = map(revision, ("own", "former", "current"))
    ending, elsewhere = revision("ending"), replace(revision("current"), namespace="other")
    target: dict[str, Any] = {"labels": {names.ROLLOUT: "5d9f"}}
    content = replace(CONFIG, name="agent-5d9f")
    daemonset = agent()
    daemonset["metadata"]["annotations"] = {keys.TARGET: "current"}
    objects = {
        CONFIG: there(CONFIG),
        content: there(content, annotations={names.CONTENT_NAMED: "true"}),
        own: there(own),
        former: there(former, **target),
        current: there(current, **target),
        elsewhere: there(elsewhere, **target),
        ending: there(ending, **target, **ENDING),
        KEY: daemonset,
    }
    live = Live(objects)
    by_use = {content, former, current, elsewhere, ending}
    assert deletions.collected_by_use(objects, live) == by_use
    assert deletions.collectable(objects, live, NOTHING) == {content, former, elsewhere}
    assert deletions.collected_by_use([CONFIG, own, KEY], live) == frozenset()


OLD = replace(CONFIG, name="agent-old")


def template(config: str) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": "c", "configMap": {"name": config}}]}}


def cluster(current: str, *kept: str, pods: str = "", marked: bool = True) -> Live:
    """The ConfigMap, the template of the DaemonSet and those of its revisions, and the ConfigMap of
    a pod.
    """
    labels = {names.CONTENT_NAMED: "agent"} if marked else {}
    objects = {
        OLD: there(OLD, labels=labels),
        KEY: {**agent(), "spec": {"template": template(current)}},
    }
    revisions = tuple(
        Revision(f"r{n}", n, f"h{n}", template(config), {}) for n, config in enumerate(kept)
    )
    named = frozenset({(pods, "agent-old")} if pods else ())
    return Live(objects, {KEY: revisions}, (), named)


def of_target(config: str) -> Live:
    """A rollout in progress, whose ConfigMap is no longer in Git (`supersede: finish-first`)."""
    return replace(cluster("agent-new"), targets=cluster("agent-new", config).revisions)


@pytest.mark.parametrize(
    ("seen", "goes"),
    [
        (cluster("agent-new"), True),
        (cluster("agent-new", "agent-new"), True),
        (cluster("agent-old"), False),
        (cluster("agent-new", "agent-old", "agent-new"), False),
        (cluster("agent-new", pods="infra"), False),
        (of_target("agent-old"), False),
        (of_target("agent-new"), True),
        (cluster("agent-new", pods="elsewhere"), True),
        (cluster("agent-new", marked=False), False),
    ],
)
def test_a_config_map_is_collected_only_when_no_template_revision_or_pod_references_it(
    seen: Live, goes: bool
) -> None:
    assert deletions.collectable([OLD], seen, NOTHING) == (
        frozenset({OLD}) if goes else frozenset()
    )


@pytest.mark.parametrize(("config", "goes"), [("agent-old", False), ("agent-new", True)])
def test_a_config_map_of_a_daemonset_that_is_to_be_created_stays(config: str, goes: bool) -> None:
    """During a rollout it is created with the proven template, and has no revision and no pod."""
    gone = Live({OLD: there(OLD, labels={names.CONTENT_NAMED: "agent"})})
    written = bundle(manifest("1", template=template(config)))
    assert deletions.collectable([OLD], gone, written) == (
        frozenset({OLD}) if goes else frozenset()
    )


def test_config_maps_of_volumes_projections_and_the_environment_are_in_use() -> None:
    spec = {
        "volumes": [
            {"configMap": {"name": "a"}},
            {"projected": {"sources": [{"configMap": {"name": "b"}}]}},
        ],
        "containers": [{"envFrom": [{"configMapRef": {"name": "c"}}, {}]}],
        "initContainers": [
            {"env": [{"valueFrom": {"configMapKeyRef": {"name": "d"}}}, {"value": "x"}]}
        ],
    }
    assert deletions.config_maps_in(spec) == set("abcd")


@pytest.mark.parametrize(
    ("objects", "verb"), [((CONFIG,), "is"), ((CONFIG, Key("", "Secret", "infra", "a")), "are")]
)
def test_a_container_is_kept_while_objects_in_it_are_in_git(
    objects: tuple[Key, ...], verb: str
) -> None:
    git = bundle(*(manifest("1", key) for key in objects))
    cluster = Live({key: there(key) for key in (SPACE, *objects)})
    context = replace(PRUNING, inventory=frozenset({SPACE, *objects}))
    (found,) = (skip for skip in planner.plan(git, cluster, context).refusals if skip.key == SPACE)
    assert found.reason is SkipReason.IN_USE
    assert f"would be deleted with it and {verb} still in Git" in found.message
