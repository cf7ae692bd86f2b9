"""The desired manifests of one cluster at one commit: all agents and plain manifests, sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from gitops_ds.core.errors import UsageError
from gitops_ds.core.finding import Finding
from gitops_ds.core.rollouts.cluster_report import NO_ORDER, ClusterOrder
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.source.render import agents as all_agents
from gitops_ds.source.render import (
    cluster_order,
    defaults,
    file_roles,
    layout,
    parameters,
    parsed_objects,
    rollout_policy,
)
from gitops_ds.source.render.agent_folder import RenderContext
from gitops_ds.source.render.defaults import Default
from gitops_ds.source.render.file_roles import FileRole
from gitops_ds.source.render.layout import SETTINGS, File, Layout
from gitops_ds.source.render.parsed_objects import Objects, ParsedObject
from gitops_ds.source.rules import NO_ENVIRONMENT, NO_MATCH


@dataclass(slots=True)
class _Gathered:
    drafts: list[ParsedObject] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def render(snapshot: SourceTree, *, cluster: str = "", namespace: str = "") -> Bundle:
    """The bundle of a snapshot for one of its clusters.

    `cluster` is optional if the repository has at most one. `namespace` is for objects without one,
    and overrides the cluster file's and the repository's. Errors in files are findings of the
    bundle, never exceptions; raises UsageError for an unknown cluster.
    """
    repo_layout = layout.read(snapshot)
    facts = facts_of(repo_layout, cluster, namespace)
    gathered = _Gathered(findings=[*snapshot.findings, *_layout_findings(repo_layout, facts)])
    by_path = file_roles.roles(repo_layout)
    _plain(repo_layout, by_path, gathered)
    around = surroundings(repo_layout, facts)
    empty = file_roles.without_objects(repo_layout, by_path, all_agents.chosen(around))
    gathered.findings += file_roles.findings(repo_layout, by_path, empty)
    rollouts, findings = rollout_policy.policies(around)
    gathered.findings += findings
    rendered = all_agents.render(around)
    gathered.drafts += rendered.drafts
    gathered.findings += rendered.findings
    manifests, findings = defaults.finish(
        gathered.drafts, _defaults(repo_layout, facts, namespace), repo_layout.place
    )
    unique = dict.fromkeys(
        finding.on_cluster(facts.name) for finding in (*gathered.findings, *findings)
    )
    return Bundle(
        commit=snapshot.commit.id if snapshot.commit else None,
        cluster=facts,
        manifests=manifests,
        findings=tuple(sorted(unique, key=_order)),
        skipped=tuple(map(str, empty)),
        unread=file_roles.unread_objects(repo_layout, by_path),
        orders=cluster_order.orders(repo_layout),
        owner_hint=repo_layout.settings.text("name"),
        held=rendered.held,
        drift=rendered.drift,
        profile=repo_layout.settings.text("profile") or "default",
        custom=layout.custom(repo_layout.settings),
        expected=rendered.expected,
        rollouts=rollouts,
        consumed=frozenset(path.as_posix() for path in snapshot.consumed),
        rules={
            rule: on
            for rule, on in repo_layout.settings.section("rules").items()
            if isinstance(on, bool | Mapping)
        },
    )


def clusters(snapshot: SourceTree) -> tuple[str, ...]:
    """The names of the repository's clusters, sorted."""
    return tuple(layout.read(snapshot).clusters)


def objects(snapshot: SourceTree) -> Mapping[PurePosixPath, Objects]:
    """The parsed objects of the snapshot's files."""
    return layout.read(snapshot).parsed


def facts(snapshot: SourceTree, cluster: str) -> ClusterFacts:
    """The facts of one of the repository's clusters. Raises UsageError for an unknown one."""
    return facts_of(layout.read(snapshot), cluster)


def cluster_orders(snapshot: SourceTree) -> Mapping[str, ClusterOrder]:
    """The place of each cluster in their order; empty if no cluster waits for another."""
    return cluster_order.orders(layout.read(snapshot))


def is_ours(snapshot: SourceTree) -> bool:
    """Whether the repository has a file of our format: gitops-ds.yaml, or one in clusters/,
    environments/ or agents/.
    """
    return layout.read(snapshot).ours


def agents(snapshot: SourceTree) -> tuple[str, ...]:
    """The names of the agents under agents/, sorted. A plain DaemonSet becomes an agent when it is
    rendered.
    """
    return tuple(layout.read(snapshot).agents)


def ignored(snapshot: SourceTree) -> Callable[[PurePosixPath], bool]:
    """Whether a file is excluded by .gitopsdsignore or `ignore:`, for the preparation of a
    snapshot.
    """
    return layout.read(snapshot).ignored.take


def kustomizations(snapshot: SourceTree) -> frozenset[PurePosixPath]:
    """The kustomization folders in source.yaml files, to be expanded even if they are bases of
    others.
    """
    return file_roles.kustomize_sources(layout.read(snapshot))


def read_files(snapshot: SourceTree) -> frozenset[PurePosixPath]:
    """The files that are read for any cluster, by gitops-ds or by kustomize and helm."""
    return file_roles.read_files(layout.read(snapshot))


def facts_of(repo_layout: Layout, cluster: str, namespace: str = "") -> ClusterFacts:
    """The facts of the cluster. Raises UsageError for an unknown or ambiguous one."""
    clusters = repo_layout.clusters
    if not cluster and len(clusters) > 1:
        raise UsageError(
            f"this repository describes {len(clusters)} clusters; choose one with --cluster: "
            f"{', '.join(clusters)}"
        )
    if cluster and cluster not in clusters:
        raise UsageError(
            f"there is no clusters/{cluster}.yaml in this "
            f"repository{layout.did_you_mean(cluster, clusters)}"
        )
    name = cluster or next(iter(clusters), "")
    file = clusters.get(name, File(""))
    own_ignore = file.section("ignore")
    return ClusterFacts(
        name=name,
        environment=file.text("environment"),
        context=file.text("api", "context"),
        namespace=namespace
        or file.text("namespace")
        or repo_layout.settings.text("defaults", "namespace")
        or "default",  # as in kubectl
        kubernetes=layout.texts(file.value.get("kubernetes"))
        or layout.texts(repo_layout.settings.value.get("kubernetes")),
        pools=layout.pools(file),
        ignore=layout.requirements(own_ignore.get("match")),
        order=cluster_order.orders(repo_layout).get(name, NO_ORDER),
    )


def surroundings(repo_layout: Layout, facts: ClusterFacts) -> RenderContext:
    """The context of a cluster's agents."""
    return RenderContext(
        layout=repo_layout,
        facts=facts,
        cluster=repo_layout.clusters.get(facts.name, File("")),
        environment=repo_layout.environments.get(facts.environment, File("")),
        definition=parameters.kubernetes_definitions(facts.kubernetes),
    )


def _plain(
    repo_layout: Layout, by_path: Mapping[PurePosixPath, FileRole], gathered: _Gathered
) -> None:
    """The manifests of no agent: files, and the output of kustomize."""
    for path, role in by_path.items():
        if role is not FileRole.PLAIN:
            continue
        folder = path.parent
        objects = (
            repo_layout.objects(path)
            if path in repo_layout.files
            else parsed_objects.expanded(
                folder,
                repo_layout.snapshot.expanded[folder],
                repo_layout.snapshot.placed.get(folder, {}),
            )
        )
        gathered.drafts += objects.drafts
        gathered.findings += objects.findings


def _layout_findings(repo_layout: Layout, facts: ClusterFacts) -> list[Finding]:
    """Findings of our own files, and an unknown environment."""
    ours = [path for path in repo_layout.files if _is_ours(path)] if repo_layout.ours else []
    findings = [finding for path in ours for finding in repo_layout.findings_of(path)]
    if (
        facts.environment
        and repo_layout.environments
        and facts.environment not in repo_layout.environments
    ):
        hint = layout.did_you_mean(facts.environment, repo_layout.environments)
        place = repo_layout.place(repo_layout.clusters[facts.name].at("environment"))
        findings.append(
            NO_ENVIRONMENT.refusal(
                f"there is no environments/{facts.environment}.yaml{hint}", place
            )
        )
    for name in repo_layout.clusters[facts.name].section("agents") if facts.name else ():
        if name not in repo_layout.agents:
            hint = layout.did_you_mean(name, repo_layout.agents)
            place = repo_layout.place(repo_layout.clusters[facts.name].at("agents", name), key=True)
            findings.append(NO_MATCH.refusal(f"there is no agents/{name}/{hint}", place))
    findings += cluster_order.problems(repo_layout, facts.name)
    return findings


def _is_ours(path: PurePosixPath) -> bool:
    return str(path) == SETTINGS or (
        len(path.parts) == 2
        and path.parts[0] in ("clusters", "environments")
        and path.suffix == ".yaml"
    )


def _defaults(repo_layout: Layout, facts: ClusterFacts, override: str) -> defaults.Defaults:
    settings = repo_layout.settings
    cluster = repo_layout.clusters.get(facts.name, File(""))
    at = None
    if not override and cluster.text("namespace"):
        at = cluster.at("namespace")
    elif not override and settings.text("defaults", "namespace"):
        at = settings.at("defaults", "namespace")
    namespace = Default(facts.namespace, at)
    labels = {
        key: Default(value, settings.at("defaults", "labels", key))
        for key, value in settings.section("defaults", "labels").items()
        if isinstance(value, str)
    }
    own = {
        name: repo_layout.read(PurePosixPath("agents", name, "agent.yaml"))
        for name in repo_layout.agents
    }
    classes = {
        name: Default(file.text("class"), file.at("class"))
        for name, file in own.items()
        if file.text("class")
    }
    classes |= {
        agent: Default(name, settings.at("class", name))
        for name, members in settings.section("class").items()
        for agent in layout.texts(members)
    }
    return defaults.Defaults(namespace, labels, classes)


def _order(finding: Finding) -> tuple[str, int, int, str, str]:
    place = finding.place
    return (
        *((place.file, place.line, place.column) if place else ("", 0, 0)),
        finding.rule,
        finding.message,
    )
