"""The rollout policies of a cluster: agents/NAME/rollout.yaml over `rollout:` of the cluster's and
of the environment's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from gitops_ds.model.finding import Finding, refusal
from gitops_ds.model.sources.bundle import Pointer, RolloutSource
from gitops_ds.render import rollout_problems
from gitops_ds.render.agent_folder import RenderContext
from gitops_ds.render.layout import File
from gitops_ds.render.rollout_problems import PolicyProblem, PolicySurroundings

FILE = "rollout.yaml"


def policies(around: RenderContext) -> tuple[Mapping[str, RolloutSource], list[Finding]]:
    """The policy of each agent that has one, and the findings of all policies.

    Mappings are merged key by key, and the nearest file wins: the agent's, the cluster's, the
    environment's. Lists, such as `stages`, are replaced. An agent without a file has a policy if
    the cluster or the environment sets `stages`.
    """
    sources: dict[str, RolloutSource] = {}
    findings: list[Finding] = []
    defaults = [file for file in _defaults(around) if file.value]
    read = PolicySurroundings.of(around)
    for name in around.layout.agents:
        own = around.layout.read(PurePosixPath("agents", name, FILE))
        layers = [own, *defaults] if own.name else defaults
        document = merged([file.value for file in layers])
        if not own.name and "stages" not in document:
            continue
        problems = list(rollout_problems.problems(document, name, read))
        findings += [_finding(problem, layers, around) for problem in problems]
        if not problems:
            sources[name] = RolloutSource(document, layers[0].at())
    if defaults and not sources and not findings:
        # Defaults without any agent: their keys are checked with the default stages.
        document = merged([file.value for file in defaults])
        problems = list(rollout_problems.problems(document, "", read))
        findings += [_finding(problem, defaults, around) for problem in problems]
    return sources, findings


def merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The merged documents; earlier ones take precedence."""
    document: dict[str, Any] = {}
    for layer in reversed(layers):
        document = _over(document, layer)
    return document


def _over(base: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in above.items():
        general = result.get(key)
        both = isinstance(value, Mapping) and isinstance(general, Mapping)
        result[key] = _over(general, value) if both and general is not None else value
    return result


def _defaults(around: RenderContext) -> Iterator[File]:
    """The policy sections of the cluster and of the environment."""
    for file in (around.cluster, around.environment):
        yield File(file.name, file.section("rollout"))


def _finding(problem: PolicyProblem, layers: Sequence[File], around: RenderContext) -> Finding:
    place = around.layout.place(_pointer(layers, problem), key=True)
    return refusal(problem.rule, problem.message, place, path=problem.path)


def _pointer(layers: Sequence[File], problem: PolicyProblem) -> Pointer:
    """The place of a key in the nearest file with it, or of its nearest parent."""
    depths = [_depth(file.value, problem.path) for file in layers]
    file = layers[depths.index(max(depths))]
    prefix = () if file.name.endswith(f"/{FILE}") else ("rollout",)
    return Pointer(file.name, 0, (*prefix, *problem.path[: max(depths)]))


def _depth(value: Any, path: Sequence[str | int]) -> int:
    """How many steps of a path exist in a document."""
    for depth, step in enumerate(path):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return depth
    return len(path)
