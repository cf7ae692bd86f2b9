"""The diff of live objects and the results of server-side dry runs, as in `kubectl diff`: the same
file names, YAML, programs and exit codes.

https://github.com/kubernetes/kubectl/blob/master/pkg/cmd/diff/diff.go
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gitops_ds.cli.plan import planning
from gitops_ds.cli.plan.planning import PlanRequest
from gitops_ds.core import errors
from gitops_ds.core.change import Change, Operation
from gitops_ds.core.live import Live
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.redaction import objects
from gitops_ds.core.skip_reasons import Skipped
from gitops_ds.deploy.apply import plan_draft
from gitops_ds.deploy.apply.plan_draft import PlanDraft
from gitops_ds.deploy.plan import object_changes
from gitops_ds.kube.apimachinery import defaults
from gitops_ds.ownership import object_owner
from gitops_ds.ownership.options import PlanContext
from gitops_ds.yaml import kubectl_format

VARIABLE: Final = "KUBECTL_EXTERNAL_DIFF"
_ARGUMENT = re.compile(r"[a-zA-Z0-9-=]+")
_HIDDEN, _BEFORE, _AFTER = "***", "*** (before)", "*** (after)"


class ObjectDiff(msgspec.Struct, frozen=True):
    """An object before and after an apply; None if it does not exist."""

    key: Key
    live: Body | None
    merged: Body | None

    @property
    def file(self) -> str:
        """The name of its files: `apps.v1.DaemonSet.node-agents.node-exporter`."""
        body = self.live or self.merged or {}
        group, _, version = str(body.get("apiVersion") or "").rpartition("/")
        parts = (group, version, self.key.kind, self.key.namespace, self.key.name)
        return ".".join(parts if group else parts[1:])


class PlanDiff(msgspec.Struct, frozen=True):
    """The differences of a plan, and what it skips."""

    diffs: list[ObjectDiff]
    refusals: tuple[Skipped, ...]


async def of(request: PlanRequest) -> PlanDiff:
    """The differences of a plan, in a cluster or without one."""
    if not request.target.is_live:
        made = planning.planned(request)
        changes = (*made.plan.writes, *made.plan.held)
        diffs = list(_differing(changes, made.live, made.context, {}))
        return PlanDiff(diffs, made.plan.refusals)
    async with planning.drafted(request) as draft:
        return PlanDiff(await _of_plan(draft), draft.plan.refusals)


async def _of_plan(draft: PlanDraft) -> list[ObjectDiff]:
    """The changes of a plan, including those held back, by dry runs in the cluster."""
    changes = (*draft.plan.writes, *draft.plan.held)
    results = await plan_draft.dry_run(
        draft.inputs, (change.manifest for change in changes if change.manifest is not None)
    )
    return list(
        _differing(
            changes,
            draft.inputs.live,
            draft.inputs.context,
            {key: result.body for key, result in results.items()},
        )
    )


def _differing(
    changes: Iterable[Change],
    live: Live,
    context: PlanContext,
    results: Mapping[Key, Body | None],
) -> Iterator[ObjectDiff]:
    for change in changes:
        old, new = live.objects.get(change.key), None
        if change.operation is not Operation.DELETE and change.manifest is not None:
            new = results.get(change.key) or _predicted(change, old, context)
        difference = ObjectDiff(change.key, old, new)
        if difference.live is not None or difference.merged is not None:
            yield difference


def _predicted(change: Change, old: Body | None, context: PlanContext) -> Body | None:
    if change.manifest is None:
        return None
    if old is None:
        stamp = object_owner.stamp_of(change.manifest, context.stamp)
        return defaults.defaulted(object_owner.stamped(change.manifest, stamp))
    return object_changes.predicted(old, object_changes.probe(change.manifest, old, context))


def masked(diff: ObjectDiff) -> ObjectDiff:
    """The diff without secret values: a changed one is `*** (before)` and `*** (after)`."""
    if diff.key.kind == "Secret" and diff.key.group == "":
        return ObjectDiff(diff.key, *_masked_data(diff))
    hidden = [objects.body(body) if body is not None else None for body in (diff.live, diff.merged)]
    return ObjectDiff(diff.key, *_marked((diff.live, diff.merged), (hidden[0], hidden[1])))


def _marked(whole: tuple[Any, Any], hidden: tuple[Any, Any]) -> tuple[Any, Any]:
    """The hidden values, with marks for different values that look equal."""
    if whole[0] == whole[1] or (hidden[0] != hidden[1] and not _are_alike(hidden)):
        return hidden
    if isinstance(hidden[0], dict):
        for name in hidden[0].keys() & hidden[1].keys():
            pairs = [(side[0][name], side[1][name]) for side in (whole, hidden)]
            hidden[0][name], hidden[1][name] = _marked(pairs[0], pairs[1])
        return hidden
    if isinstance(hidden[0], list):
        for at in range(min(map(len, hidden))):
            pairs = [(side[0][at], side[1][at]) for side in (whole, hidden)]
            hidden[0][at], hidden[1][at] = _marked(pairs[0], pairs[1])
        return hidden
    return _BEFORE, _AFTER


def _are_alike(values: tuple[Any, Any]) -> bool:
    """Whether both are mappings, or both are lists."""
    return any(all(isinstance(value, kind) for value in values) for kind in (dict, list))


def _masked_data(diff: ObjectDiff) -> tuple[Body | None, Body | None]:
    """The data of a Secret, masked as in kubectl."""
    bodies = [dict(body) if body is not None else None for body in (diff.live, diff.merged)]
    data = [dict((body or {}).get("data") or {}) for body in bodies]
    for name in data[0].keys() | data[1].keys():
        differs = name in data[0] and name in data[1] and data[0][name] != data[1][name]
        for held, mark in zip(data, (_BEFORE, _AFTER), strict=True):
            if name in held:
                held[name] = mark if differs else _HIDDEN
    for body, held in zip(bodies, data, strict=True):
        if body is not None and "data" in body:
            body["data"] = held
    return bodies[0], bodies[1]


class DiffOutput(msgspec.Struct, frozen=True):
    """The exit code of the diff program (0: no differences, 1: differences, more: an error), and
    its output; empty if it printed to the terminal itself.
    """

    code: int
    text: bytes = b""


async def run_program(diffs: Iterable[ObjectDiff], *, interactive: bool) -> DiffOutput:
    """Runs the diff program on the files of all objects; an `interactive` one has the terminal.
    Raises UsageError for a program that can't be run.
    """
    with (
        tempfile.TemporaryDirectory(prefix="LIVE-") as live,
        tempfile.TemporaryDirectory(prefix="MERGED-") as merged,
    ):
        for diff in diffs:
            _write(Path(live, diff.file), diff.live)
            _write(Path(merged, diff.file), diff.merged)
        command = _command(live, merged)
        out = None if interactive else asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*command, stdout=out)
        except OSError as error:
            raise errors.UsageError(f"failed to run {command[0]!r}: {error}") from None
        text, _ = await process.communicate()
        return DiffOutput(await process.wait(), text or b"")


def _command(live: str, merged: str) -> list[str]:
    """The program of KUBECTL_EXTERNAL_DIFF, with the words of letters, digits, `-` and `=` as in
    kubectl; else `diff -u -N`.
    """
    own = os.environ.get(VARIABLE, "")
    if not own:
        return ["diff", "-u", "-N", live, merged]
    program, *arguments = own.split(" ")
    return [program, live, merged, *filter(_ARGUMENT.fullmatch, arguments)]


def _write(path: Path, body: Body | None) -> None:
    """Writes the file of an object; an empty file without an object."""
    if body is None:
        path.write_text("")
        return
    metadata = {name: held for name, held in body["metadata"].items() if name != "managedFields"}
    path.write_text(kubectl_format.dump({**body, "metadata": metadata}))
