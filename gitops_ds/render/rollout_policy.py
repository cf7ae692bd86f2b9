"""The rollout policies of a repository: agents/NAME/rollout.yaml over `rollout:` of the cluster and of the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from gitops_ds.apimachinery import rollout_windows
from gitops_ds.model import rollout_policy
from gitops_ds.model.bundle import Pointer, RolloutSource
from gitops_ds.model.finding import Finding, refusal
from gitops_ds.model.objects import Path
from gitops_ds.model.rollout_policy import RolloutPolicy
from gitops_ds.render.agent import RenderContext
from gitops_ds.render.layout import File

FILE = "rollout.yaml"
_BUILT_IN = ("pods", "nodes")


def policies(around: RenderContext) -> tuple[Mapping[str, RolloutSource], list[Finding]]:
    """The policy of each agent that has one, and findings about policies that can't be carried out.

    A file replaces the defaults key by key at its top level. An agent without a file has a policy where the cluster or the
    environment sets `stages`.
    """
    found: dict[str, RolloutSource] = {}
    findings: list[Finding] = []
    for name in around.layout.agents:
        layers = [file for file in _layers(name, around) if file.value]
        document: dict[str, Any] = {}
        for file in reversed(layers):
            document |= file.value
        if not layers or not (_has_file(name, around) or "stages" in document):
            continue
        source = RolloutSource(document, layers[0].at())
        problems = list(_problems(document))
        findings += [
            refusal(
                "DS807", message, around.layout.place(_pointer(layers, path), key=True), path=path
            )
            for path, message in problems
        ]
        if not problems:
            found[name] = source
    return found, findings


def _has_file(name: str, around: RenderContext) -> bool:
    return PurePosixPath("agents", name, FILE) in around.layout.files


def _layers(name: str, around: RenderContext) -> Iterator[File]:
    """The agent's own file, then the defaults of the cluster and of the environment."""
    yield around.layout.read(PurePosixPath("agents", name, FILE))
    for file in (around.cluster, around.environment):
        yield File(file.name, file.section("rollout"))


def _pointer(layers: list[File], path: Path) -> Pointer:
    """The place of a key in the first file that sets it."""
    for file in layers:
        if path and path[0] in file.value:
            prefix = () if file.name.endswith(FILE) else ("rollout",)
            return Pointer(file.name, 0, (*prefix, *path))
    return layers[0].at()


def _problems(document: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The keys of a policy that contradict each other, name nothing, or are not implemented."""
    try:
        policy = rollout_policy.decode(document)
    except ValueError as error:
        yield ("stages",), str(error)
        return
    yield from _unknown_names(policy)
    for name, window in policy.windows.items():
        # A fixed time: the finding of a repository must not depend on when it is checked.
        if problem := rollout_windows.problem(window, 0.0):
            yield ("windows", name), problem
    for number, freeze in enumerate(policy.freeze):
        if freeze.to < freeze.from_:
            yield ("freeze", number), f"the freeze ends on {freeze.to}, before it begins"


def _unknown_names(policy: RolloutPolicy) -> Iterator[tuple[Path, str]]:
    for number, stage in enumerate(policy.stages):
        for gate in stage.gates:
            if gate not in policy.gates and gate not in _BUILT_IN:
                yield ("stages", number, "gates"), f"there is no gate {gate!r} in gates"
        for window in stage.windows:
            if window not in policy.windows:
                yield ("stages", number, "windows"), f"there is no window {window!r} in windows"
