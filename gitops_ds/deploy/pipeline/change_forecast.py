"""The forecast of a change: its additional requests, whether pods fit, its rollout, in stages or
not, and whether it can be rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gitops_ds.checks.change import regressions
from gitops_ds.checks.cluster import node_sharing, references
from gitops_ds.checks.engine.contexts import ChangeSides
from gitops_ds.checks.engine.rule import pod, section, template
from gitops_ds.core import duration
from gitops_ds.core.change import Change, Cost, Operation, StagedPreview
from gitops_ds.core.live import Census, Node
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.values import replace
from gitops_ds.daemonset import rollout_forecast
from gitops_ds.daemonset.rollout_forecast import RolloutForecast
from gitops_ds.kube.apimachinery import defaults, node_eligibility, node_pools, request_costs
from gitops_ds.kube.apimachinery.node_eligibility import Placement
from gitops_ds.rollouts.decisions import staged_forecast
from gitops_ds.rollouts.decisions.staged_forecast import RolloutNodes
from gitops_ds.rollouts.state import daemonset_statements, target_revisions


class WayBack(msgspec.Struct, frozen=True):
    """The revision that a revert restores (None: unknown), its new number, and the obstacles
    (empty: it can be restored).
    """

    revision: int | None
    becomes: int | None
    obstacles: tuple[str, ...] = ()


class ChangeForecast(msgspec.Struct, frozen=True):
    """The forecast of one change. `configuration` are sentences about the effect of changed
    ConfigMaps and Secrets on pods.
    """

    costs: tuple[Cost, ...] = ()
    misfits: tuple[node_sharing.Misfit, ...] = ()
    configuration: tuple[str, ...] = ()
    rollout: RolloutForecast | None = None
    broken: tuple[str, ...] = ()
    back: WayBack | None = None


NOTHING = ChangeForecast()


@dataclass
class RolloutForecasts:
    """Simulated rollouts: equal rollouts on equal nodes are simulated once."""

    played: dict[tuple[object, ...], tuple[RolloutForecast, tuple[int, ...]]] = field(
        default_factory=dict
    )

    def of(self, old: Body, new: Body, nodes: Sequence[Node]) -> RolloutForecast:
        """The simulated rollout from one DaemonSet to the other on these nodes, in the order of
        their names.
        """
        concerned, shape = _shape(old, new, nodes)
        spec = section(new.get("spec"))
        metadata = section(new.get("metadata"))
        same = (
            shape,
            repr(spec.get("updateStrategy")),
            spec.get("minReadySeconds"),
            repr(metadata.get("annotations")),
        )
        if same not in self.played:
            rollout = rollout_forecast.of(
                defaults.defaulted(old), defaults.defaulted(new), concerned
            )
            places = {node.name: place for place, node in enumerate(concerned)}
            self.played[same] = rollout, tuple(places[name] for name in rollout.waiting)
        rollout, waiting = self.played[same]
        names = tuple(concerned[place].name for place in waiting)
        return RolloutForecast(
            rollout.seconds, rollout.steps, rollout.at_once, names, rollout.estimated
        )


def _shape(old: Body, new: Body, nodes: Sequence[Node]) -> tuple[list[Node], bytes]:
    """The nodes of either side, and their properties in a rollout: the sides, and whether they are
    ready.
    """
    placers = [node_eligibility.read(template(body)) for body in (old, new)]
    grouped = node_pools.equal_groups(nodes, node_pools.keys_of(placers))
    before, after = (
        {
            node.name: placement
            for placement, some in node_pools.placed(placer, grouped).items()
            for node in some
        }
        for placer in placers
    )
    numbers = {Placement.EVICT: 0, Placement.KEEP: 1, Placement.RUN: 2}
    concerned, shape = [], bytearray()
    for node in nodes:
        code = numbers[before[node.name]] * 3 + numbers[after[node.name]]
        if code:
            concerned.append(node)
            shape.append(code * 2 + node.ready)
    return concerned, bytes(shape)


def forecasts(
    sides: ChangeSides, changes: Sequence[Change], played: RolloutForecasts, *, history: bool
) -> Mapping[Key, ChangeForecast]:
    """The forecast of each change that has one. `history`: revisions are those of the cluster."""
    census = sides.census
    misfits: dict[Key, list[node_sharing.Misfit]] = {}
    if census is not None and census.room and any(change.key.is_daemonset for change in changes):
        for misfit in node_sharing.misfits(sides.after):
            misfits.setdefault(misfit.key, []).append(misfit)
    readers = _readers(sides)
    forecasts = {}
    for change in changes:
        if change.key.is_daemonset:
            forecast = _of_daemonset(
                change, sides, tuple(misfits.get(change.key, ())), played, history=history
            )
        else:
            forecast = ChangeForecast(configuration=tuple(_read_by(change, readers)))
        if forecast != NOTHING:
            forecasts[change.key] = forecast
    return forecasts


def _of_daemonset(
    change: Change,
    sides: ChangeSides,
    misfits: tuple[node_sharing.Misfit, ...],
    played: RolloutForecasts,
    *,
    history: bool,
) -> ChangeForecast:
    base, head = sides.base.get(change.key), sides.head.get(change.key)
    costs = tuple(_costs(change.key, sides)) if sides.census is not None else ()
    if base is None or head is None:
        return ChangeForecast(costs, misfits)
    rolls = change.rollout is not None and change.rollout.rolls
    rollout = None
    broken: tuple[str, ...] = ()
    staged = change.stages is not None
    if rolls and not staged and sides.census is not None and change.key in sides.after.eligible:
        rollout = played.of(base.body, head.body, sides.census.nodes)
        eligible = sides.after.eligible[change.key]
        broken = tuple(
            node.name for node in sides.census.nodes if not node.ready and node.name in eligible
        )
    configuration = tuple(_rolled_by(base.body, head.body)) if rolls else ()
    return ChangeForecast(
        costs, misfits, configuration, rollout, broken, _back(change, sides, history=history)
    )


def _costs(key: Key, sides: ChangeSides) -> Iterator[Cost]:
    if any(key in side.unknown for side in (sides.before, sides.after)):
        return
    before, after = (side.eligible.get(key, frozenset()) for side in (sides.before, sides.after))
    specs = (side.get(key) for side in (sides.base, sides.head))
    old, new = ({} if manifest is None else pod(manifest.body) for manifest in specs)
    yield from request_costs.of_change(old, new, before, after)


def _rolled_by(before: Body, after: Body) -> Iterator[str]:
    """The configuration because of which pods restart: a name that ends in another hash, or an
    annotation with another hash.
    """
    names = [
        {(kind, name) for _, kind, name in references.of(pod(body))} for body in (before, after)
    ]
    for kind in ("ConfigMap", "Secret"):
        old, new = (
            sorted(name for one, name in side if one == kind)
            for side in (names[0] - names[1], names[1] - names[0])
        )
        if old and new:
            yield f"restarts for its configuration: {kind} {', '.join(old)} -> {', '.join(new)}"
    marks = [
        section(section(template(body).get("metadata")).get("annotations"))
        for body in (before, after)
    ]
    hashes = [
        key
        for key in sorted(marks[1])
        if marks[0].get(key) != marks[1][key] and ("checksum" in key or "hash" in key)
    ]
    if hashes:
        yield (
            f"restarts for its configuration: the annotation {', '.join(hashes)} has another value"
        )


def _readers(sides: ChangeSides) -> Mapping[tuple[str, str, str], list[Key]]:
    """The DaemonSets by the ConfigMaps and Secrets of their pods (kind, namespace and name)."""
    readers: dict[tuple[str, str, str], list[Key]] = {}
    for manifest in sides.after.daemonsets:
        for _, kind, name in dict.fromkeys(references.of(pod(manifest.body))):
            readers.setdefault((kind, manifest.key.namespace, name), []).append(manifest.key)
    return readers


def _read_by(change: Change, readers: Mapping[tuple[str, str, str], list[Key]]) -> Iterator[str]:
    key = change.key
    if key.kind in ("ConfigMap", "Secret") and change.operation is Operation.UPDATE:
        for reader in dict.fromkeys(readers.get((key.kind, key.namespace, key.name), ())):
            yield (
                f"read by {reader}: no pod restarts for it; mounted files follow in a while, "
                "variables with the next restart"
            )


def _back(change: Change, sides: ChangeSides, *, history: bool) -> WayBack | None:
    rollout = change.rollout
    base, head = sides.base[change.key], sides.head[change.key]
    obstacles = tuple(
        violation.message
        for violation in regressions.no_way_back(change.key, base.body, head.body, sides)
    )
    if rollout is None or not (rollout.rolls or obstacles):
        return None
    is_earlier = history and rollout.current is not None
    return WayBack(
        rollout.current if is_earlier else None,
        rollout.becomes + 1 if is_earlier else None,
        obstacles,
    )


def lines(forecast: ChangeForecast, change: Change, census: Census | None) -> Iterator[str]:
    """The forecast as sentences."""
    yield from forecast.configuration
    if forecast.costs:
        yield request_costs.line(forecast.costs)
    if census is not None:
        for misfit in forecast.misfits:
            yield misfit.sentence(census)
        if forecast.rollout:
            yield _rollout_line(forecast.rollout, forecast.broken, change, census)
    if forecast.back:
        yield _back_line(forecast.back)


def _rollout_line(
    played: RolloutForecast, broken: Sequence[str], change: Change, census: Census
) -> str:
    pace = rollout_forecast.USUAL
    assumed = f"if a pod takes {pace.start:.0f} s to start and {pace.stop:.0f} s to stop"
    if played.waiting:
        rolling = section(
            section(section(change.manifest.body if change.manifest else {}).get("spec")).get(
                "updateStrategy"
            )
        )
        most = section(rolling.get("rollingUpdate")).get("maxUnavailable", 1)
        why = (
            f"{node_pools.summary(broken, census)} not ready and maxUnavailable {most}; "
            if broken
            else ""
        )
        return (
            f"does not end: {why}{node_pools.summary(played.waiting, census, shown=1)} would wait "
            "for a new pod indefinitely"
        )
    steps = counted(played.steps, "step")
    without = f"at most {counted(played.at_once, 'node')} at once without it"
    begun = " (extrapolated)" if played.estimated else ""
    return f"takes about {duration.words(played.seconds)} in {steps}{begun}, {without}, {assumed}"


def _back_line(back: WayBack) -> str:
    if back.obstacles:
        return f"way back: {'; '.join(back.obstacles)}"
    if back.revision is None:
        return "way back: a revert restores the template of the base"
    return f"way back: a revert restores revision {back.revision}, as revision {back.becomes}"


def as_json(forecast: ChangeForecast, change: Change, census: Census | None) -> dict[str, Any]:
    """The forecast as a part of a change in the report of a check."""
    document: dict[str, Any] = {}
    if census is not None and change.key.is_daemonset:
        document["nodes"] = {
            word: _nodes(getattr(change.nodes, word), census)
            for word in ("gained", "lost", "restarted")
        }
    if forecast.costs:
        document["cost"] = request_costs.as_json(forecast.costs)
    if forecast.misfits and census is not None:
        document["misfits"] = [
            {"why": misfit.why, "surge": misfit.surging, **_nodes(misfit.nodes, census)}
            for misfit in forecast.misfits
        ]
    if forecast.configuration:
        document["configuration"] = list(forecast.configuration)
    if (played := forecast.rollout) is not None:
        document["rehearsal"] = {
            "seconds": round(played.seconds),
            "steps": played.steps,
            "atOnce": played.at_once,
            "waiting": list(played.waiting),
            "notReady": list(forecast.broken),
            "estimated": played.estimated,
        }
    if (back := forecast.back) is not None:
        possible = not back.obstacles
        document["back"] = {
            "possible": possible,
            "revision": back.revision,
            "becomes": back.becomes,
            "obstacles": list(back.obstacles),
        }
    return document


def _nodes(names: Sequence[str], census: Census) -> dict[str, Any]:
    """The nodes for JSON; declared nodes have no names outside of this check."""
    entry: dict[str, Any] = {"count": len(names), "pools": node_pools.by_pool(names, census)}
    return entry if census.declared else {**entry, "names": list(names)}


@dataclass
class StagedForecasts:
    """Forecasts of staged rollouts. Equal policies over equal nodes are simulated once."""

    # The nodes are referenced, so that their id is not reused.
    _known: dict[tuple[object, ...], tuple[Sequence[Node], StagedPreview]] = field(
        default_factory=dict
    )

    def over(
        self,
        changes: Iterable[Change],
        before: Mapping[Key, Body],
        bundle: Bundle,
        nodes: Sequence[Node],
    ) -> list[Change]:
        """The changes, with the forecast of each that begins a staged rollout.

        `before` are the objects before the change; a DaemonSet outside of it is created without
        stages. Without `nodes` the forecasts have only the stages.
        """
        return [
            replace(change, stages=self._of(change, before[change.key], bundle, nodes))
            if change.key in before and is_staged(change, bundle)
            else change
            for change in changes
        ]

    def _of(
        self, change: Change, old: Body, bundle: Bundle, nodes: Sequence[Node]
    ) -> StagedPreview:
        document = bundle.rollouts[bundle.manifests[change.key].agent]
        pools = bundle.cluster.pools
        spec = template(old).get("spec") or {}
        key = (
            target_revisions.policy_text(document, pools),
            repr([spec.get(part) for part in ("nodeSelector", "affinity", "tolerations")]),
            # Fields of the spec that affect tolerations.
            repr(spec.get("hostNetwork")),
            (old.get("spec") or {}).get("minReadySeconds"),
            id(nodes),
        )
        if key not in self._known:
            preview = staged_forecast.of(
                defaults.defaulted(old),
                template(defaults.defaulted(bundle.manifests[change.key].body)),
                rollout_policy.decode(document),
                RolloutNodes(nodes, pools),
            )
            self._known[key] = nodes, preview
        return self._known[key][1]


def is_staged(change: Change, bundle: Bundle) -> bool:
    """Whether a change starts a staged rollout: it sets a target revision, or is not divided into
    stages yet.
    """
    manifest = bundle.manifests.get(change.key)
    if (
        change.operation is not Operation.UPDATE
        or change.manifest is None
        or manifest is None
        or not change.key.is_daemonset
        or manifest.agent not in bundle.rollouts
    ):
        return False
    annotations = (change.manifest.body.get("metadata") or {}).get("annotations") or {}
    if daemonset_statements.has_policy(annotations):
        return daemonset_statements.has_target(annotations)
    return change.rollout is not None and change.rollout.rolls
