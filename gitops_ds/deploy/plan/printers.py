"""A plan as text, JSON and Markdown. The keys of the JSON are a contract: docs/reference/json.md"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gitops_ds.core import duration, names, plain_text
from gitops_ds.core.change import (
    Change,
    FieldChange,
    Operation,
    Plan,
    Rollout,
    StagedPreview,
    StagePreview,
)
from gitops_ds.core.live import Census, NodeImpact
from gitops_ds.core.objects import Key, annotations_of, short, show_path
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.core.redaction import objects, texts
from gitops_ds.core.skip_reasons import Skipped
from gitops_ds.kube.apimachinery import node_pools, request_costs
from gitops_ds.rollouts.state import daemonset_statements
from gitops_ds.rollouts.waves import wave_order

_SIGNS = {Operation.CREATE: "+", Operation.UPDATE: "~", Operation.DELETE: "-", Operation.KEEP: " "}
SHOWN_NODES = 12
_LONGEST_PATH = 2000  # characters


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan by schemas/plan.schema.json."""
    total = impact(plan)
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Plan",
        "commit": plan.commit,
        "cluster": plan.cluster,
        "hash": plan.hash,
        "changes": [change_json(change) for change in plan.changes],
        "refusals": [_refusal_json(refusal) for refusal in plan.refusals],
        "held": [
            {**change_json(change), "nodes": nodes_json(change.nodes)} for change in plan.held
        ],
        "nodes": nodes_json(total),
        "nodesKnown": plan.unknown_nodes is None,
        **({"order": wave_order.as_json(plan.order)} if plan.order.exists else {}),
    }


def nodes_json(nodes: NodeImpact) -> dict[str, list[str]]:
    """Nodes by the effect on their pods."""
    return {
        "gained": list(nodes.gained),
        "lost": list(nodes.lost),
        "restarted": list(nodes.restarted),
    }


def _refusal_json(refusal: Skipped) -> dict[str, Any]:
    about: dict[str, Any] = {"object": reference(refusal.key)} if refusal.key else {}
    objects = {"objects": [reference(key) for key in refusal.held]} if refusal.held else {}
    return {"guard": refusal.reason, "message": texts.words(refusal.message), **about, **objects}


def reference(key: Key) -> dict[str, str]:
    """The reference to an object in JSON."""
    return {"group": key.group, "kind": key.kind, "namespace": key.namespace, "name": key.name}


def change_json(change: Change, census: Census | None = None) -> dict[str, Any]:
    """One change in the plan's JSON; declared nodes of the census have no names."""
    document: dict[str, Any] = {
        "operation": change.operation.value,
        "object": reference(change.key),
        "fields": [],
    }
    for field in change.fields:
        shown = objects.field(change.key, field)
        document["fields"].append(
            {"path": show_path(shown.path), "old": shown.old, "new": shown.new}
        )
    if change.rollout:
        rollout = change.rollout
        document["rollout"] = {
            "from": rollout.current,
            "to": rollout.becomes,
            "knownAs": rollout.known_as,
            "restarts": list(change.nodes.restarted),
        }
    if change.nodes.waiting:
        document["waiting"] = list(change.nodes.waiting)
        if joined := change.nodes.joined:
            document["joinTime"] = {"seconds": joined.seconds, "nodes": joined.nodes}
    if change.target:
        document["target"] = change.target
    if change.costs:
        document["cost"] = request_costs.as_json(change.costs)
    if change.stages:
        document["stages"] = staged_json(change.stages, census)
    return document


def impact(plan: Plan) -> NodeImpact:
    """The nodes of all changes, each once."""
    parts = [change.nodes for change in plan.changes]
    return NodeImpact(
        tuple(sorted({node for part in parts for node in part.gained})),
        tuple(sorted({node for part in parts for node in part.lost})),
        tuple(sorted({node for part in parts for node in part.restarted})),
    )


def source(plan: Plan) -> str:
    """The source of the plan: `commit ID`, or the work tree."""
    return f"commit {short(plan.commit)}" if plan.commit else "the work tree, not a commit"


def as_text(plan: Plan) -> str:
    """The plan for a terminal; lines of changes begin with `+`, `~` or `-`, refusals with `!`."""
    return "\n".join(_text(plan)) + "\n"


def change_lines(changes: Sequence[Change], census: Census | None = None) -> Iterator[str]:
    """Each change with its fields, its revision and its nodes; with a census, nodes by pool."""
    for change in changes:
        yield f"  {_SIGNS[change.operation]} {change.operation.value} {change.key}"
        for field in change.fields:
            shown = objects.field(change.key, field)
            yield f"      {field_line(shown)}"
        for line in _rollout_lines(change, census):
            yield f"      {line}"
        if change.costs:
            yield f"      {request_costs.line(change.costs)}"


def field_line(shown: FieldChange) -> str:
    """A field and its two values; secrets are already hidden."""
    path = plain_text.line(show_path(shown.path), _LONGEST_PATH)
    return f"{path}: {_value(shown.old)} -> {_value(shown.new)}"


def _text(plan: Plan) -> Iterator[str]:
    yield from change_lines(plan.writes)
    for refusal in plan.refusals:
        yield f"  ! {texts.words(refusal.message)}"
    if plan.held:
        yield "  ! held back until the hash is approved:"
        yield from (f"  !{line}" for line in change_lines(plan.held))
    if plan.writes or plan.refusals:
        yield ""
    yield f"Source: {source(plan)}"
    if plan.order.exists:
        yield f"Cluster: {plan.cluster}, {wave_order.words(plan.order)}"
    yield f"Plan: {_summary(plan)}."
    yield f"Hash: {plan.hash}"


def _summary(plan: Plan) -> str:
    count = Counter(change.operation for change in plan.changes)
    total = impact(plan)
    words = (
        f"{count[Operation.CREATE]} to create, {count[Operation.UPDATE]} to update, "
        f"{count[Operation.DELETE]} to delete, "
    )
    words += f"{count[Operation.KEEP]} unchanged"
    if plan.held:
        words += f", {len(plan.held)} held"
    if plan.unknown_nodes:
        words += "; nodes: unknown"
    elif total != NodeImpact():
        words += (
            f"; nodes: {len(total.gained)} gained, {len(total.lost)} lost, {len(total.restarted)} "
            "restarted"
        )
    return words


def _rollout_lines(change: Change, census: Census | None) -> Iterator[str]:
    rollout, nodes = change.rollout, change.nodes

    def named(some: Sequence[str]) -> str:
        return (
            _nodes(some) if census is None else node_pools.summary(some, census, shown=SHOWN_NODES)
        )

    if change.target:
        yield change.target
    elif _ends_rollout(change):
        yield "ends its staged rollout: the proven template replaces the pods of the target at once"
    elif rollout and change.operation is Operation.UPDATE and (rollout.rolls or not change.stages):
        yield _revision(rollout)
    if nodes.gained:
        yield f"gains {named(nodes.gained)}"
    if nodes.lost:
        yield f"loses {named(nodes.lost)}"
    if nodes.waiting:
        joined = (
            f"; it was available {duration.words(nodes.joined.seconds)} after a node joined, the "
            f"median of {counted(nodes.joined.nodes, 'node')}"
            if nodes.joined
            else ""
        )
        yield f"required for work from now on, with a startup taint: {named(nodes.waiting)}{joined}"
    if change.stages:
        yield from staged_lines(change.stages, census)
    elif nodes.restarted:
        yield f"restarts {named(nodes.restarted)}, {_pace(change, len(nodes.restarted))}"
    elif (
        rollout
        and rollout.rolls
        and change.operation is Operation.UPDATE
        and _strategy(change) == "OnDelete"
    ):
        yield (
            "the rollout policy replaces its pods without stages: the template was proved before"
            if _has_policy(change)
            else "restarts nothing until a pod is deleted (OnDelete)"
        )


def _revision(rollout: Rollout) -> str:
    if not rollout.rolls:
        return "no new revision: no pod restarts"
    if rollout.known_as is not None and rollout.known_as == rollout.becomes:
        return f"revision {rollout.becomes}, the newest one in the cluster"
    if rollout.known_as is not None:
        return f"back to revision {rollout.known_as}, which becomes revision {rollout.becomes}"
    return f"new revision {rollout.becomes}"


def _strategy(change: Change) -> str:
    spec = (change.manifest.body.get("spec") or {}) if change.manifest else {}
    return str((spec.get("updateStrategy") or {}).get("type") or "RollingUpdate")


def _ends_rollout(change: Change) -> bool:
    """Whether the template is that of the DaemonSet again, in the middle of a rollout."""
    rolls = change.rollout is not None and change.rollout.rolls
    removed = (field.path[-1] for field in change.fields if field.path and field.new is None)
    return not rolls and any(map(daemonset_statements.is_target, removed))


def _has_policy(change: Change) -> bool:
    body = change.manifest.body if change.manifest else {}
    return daemonset_statements.has_policy(annotations_of(body))


def _pace(change: Change, nodes: int) -> str:
    spec = (change.manifest.body.get("spec") or {}) if change.manifest else {}
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    surge = rolling.get("maxSurge") or 0
    share = surge if surge not in (0, "0%") else rolling.get("maxUnavailable", 1)
    at_once = max(
        1,
        -(-int(share[:-1]) * nodes // 100)
        if isinstance(share, str) and share.endswith("%")
        else int(share),
    )
    return f"at most {at_once} at a time, so in {counted(-(-nodes // at_once), 'batch', 'batches')}"


def _nodes(some: Sequence[str]) -> str:
    return f"{counted(len(some), 'node')}: {listed(some, SHOWN_NODES)}"


def _value(shown: Any) -> str:
    if shown is None:
        return "(none)"
    text = json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= 160 else text[:157] + "..."


def as_markdown(plan: Plan) -> str:
    """The plan for a pull request's comment."""
    where = f" for `{plan.cluster}`" if plan.cluster else ""
    lines = [f"### Plan{where}: {_summary(plan)}", ""]
    if plan.writes:
        lines += ["| | object | revision | nodes |", "|---|---|---|---|"]
        lines += [_row(change, unknown=bool(plan.unknown_nodes)) for change in plan.writes]
    for change in plan.writes:
        if change.stages or change.target:
            preview = staged_lines(change.stages, None) if change.stages else ()
            stages = "\n".join((*filter(None, (change.target,)), *preview))
            lines += ["", f"{_code(str(change.key))}:", "", "```text", stages, "```"]
    if any(change.fields for change in plan.writes):
        lines += ["", "<details><summary>Fields</summary>", ""]
        for change in plan.writes:
            for field in change.fields:
                shown = objects.field(change.key, field)
                lines.append(
                    f"- {_code(f'{change.key} {show_path(shown.path)}')}: "
                    f"{_code(_value(shown.old))} → {_code(_value(shown.new))}"
                )
        lines += ["", "</details>"]
    lines += [f"- **refused**: {_code(texts.words(refusal.message))}" for refusal in plan.refusals]
    for change in plan.held:
        line = (
            f"- **held back** until the hash is approved: {change.operation.value} "
            f"{_code(str(change.key))} {_counts(change.nodes)}"
        )
        lines.append(line.rstrip())
    return "\n".join([*lines, "", f"Plan hash: `{plan.hash}`, of {source(plan)}", ""])


def _row(change: Change, *, unknown: bool) -> str:
    revision = _revision(change.rollout) if change.rollout and change.fields else ""
    nodes = "unknown" if unknown and change.key.is_daemonset else _counts(change.nodes)
    return f"| {change.operation.value} | {_code(str(change.key))} | {revision} | {nodes} |"


def _counts(nodes: NodeImpact) -> str:
    parts = ((nodes.gained, "gained"), (nodes.lost, "lost"), (nodes.restarted, "restarted"))
    return ", ".join(f"{len(some)} {word}" for some, word in parts if some)


def _code(text: str) -> str:
    """Text from a manifest in a code span, escaped so that it can't end the span, also in a
    table.
    """
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    inner = text.replace("|", "\\|").replace("\n", " ")
    return f"{ticks} {inner} {ticks}" if "`" in inner else f"{ticks}{inner}{ticks}"


_SHOWN_IN_STAGE = 5


def staged_lines(preview: StagedPreview, census: Census | None) -> Iterator[str]:
    """The stages in order: their nodes, the first ones by name, and their times after the start."""
    count = counted(len(preview.stages), "stage")
    if not preview.order:
        yield f"staged rollout in {count}: {', '.join(stage.name for stage in preview.stages)}"
        return
    length = (
        "of unknown length"
        if preview.seconds is None
        else f"about {duration.words(preview.seconds)}{' (extrapolated)' * preview.estimated}"
    )
    assumed = f"a pod starts in {preview.start:.0f} s and stops in {preview.stop:.0f} s"
    nodes = counted(len(preview.order), "node")
    yield (
        f"staged rollout of {nodes} in {count}, {length} without faults ({assumed}), at most "
        f"{preview.cap:,} at risk:"
    )
    for stage in preview.stages:
        yield f"  {stage.label}: {_stage(stage, census)}"
    if preview.parked:
        parked = _stage_nodes(preview.parked, census)
        yield f"  parked until they are well again: {parked}"


def _stage(stage: StagePreview, census: Census | None) -> str:
    words = _stage_nodes(stage.nodes, census)
    if stage.begins is not None:
        ends = "" if stage.ends is None else f" to {duration.words(stage.ends)}"
        words += f"; from {duration.words(stage.begins)}{ends}"
    if stage.waits:
        words += f"; waits for {', '.join(stage.waits)}"
    return words


def _stage_nodes(names: Sequence[str], census: Census | None) -> str:
    """The nodes in order; declared ones, which have no names, by pool."""
    if census is not None and census.declared:
        return node_pools.summary(names, census)
    count = counted(len(names), "node")
    return f"{count}: {node_pools.listed(names, _SHOWN_IN_STAGE)}" if names else count


def staged_json(preview: StagedPreview, census: Census | None) -> dict[str, Any]:
    """The preview as a part of a change; times in seconds after the start."""
    declared = census is not None and census.declared
    return {
        "seconds": _rounded(preview.seconds),
        "estimated": preview.estimated,
        "cap": preview.cap,
        "podStart": preview.start,
        "podStop": preview.stop,
        "parked": [] if declared else list(preview.parked),
        "stages": [
            {
                "name": stage.name,
                "count": len(stage.nodes),
                "nodes": [] if declared else list(stage.nodes),
                "begins": _rounded(stage.begins),
                "ends": _rounded(stage.ends),
                "waits": list(stage.waits),
                "takenFrom": stage.taken_from or None,
            }
            for stage in preview.stages
        ],
    }


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
