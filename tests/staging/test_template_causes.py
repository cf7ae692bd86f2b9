"""The commit of a template, over small histories: rendered content decides, not files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks import costs
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.halted_rollout import BranchCommit, FileChange
from gitops_ds.core.rollouts.proven_templates import (
    HaltedTemplate,
    RecordedTemplate,
    TemplateHistory,
    TemplateProof,
)
from gitops_ds.core.rollouts.template_cause import RenderedCommit, TemplateCause
from gitops_ds.core.sources.bundle import ManifestOrigin
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.core.values import replace
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import PlanContext
from gitops_ds.rollouts.causes import template_causes, template_digests
from gitops_ds.rollouts.causes.template_causes import BranchLine, WantedCause
from gitops_ds.rollouts.staging import git_template
from gitops_ds.rollouts.state import halted_templates, keys
from tests.staging.staged_objects import KEY, bundle, live, live_object, manifest

AGENT = Key("apps", "DaemonSet", "default", "agent")
OWN, SHARED, OTHER = "agents/agent/ds.yaml", "clusters/main.yaml", "agents/other/ds.yaml"
PLACES = frozenset({"agents/agent", SHARED})
AT = datetime(2026, 1, 1, tzinfo=UTC)


def id(number: int) -> CommitId:
    return CommitId(f"{number:040x}")


def line(*files: str, start: int = 1, parent: int | None = None) -> BranchLine:
    """A commit for each file, the oldest first, on the commit `start`."""
    commits = []
    for number, file in enumerate(files, start + 1):
        above = (start if parent is None else parent) if number == start + 1 else number - 1
        info = CommitInfo(id(number), (id(above),), AT, f"Author {number}", f"Change {number}")
        commits.append(BranchCommit(info, info.subject, {file: FileChange("a", "b")}))
    return BranchLine(id(start), commits[::-1])


def wanted(
    source: str, before: str | None = "P", goal: str | None = "", commits: tuple[int, ...] = ()
) -> WantedCause:
    """`goal` is that before, if empty; `commits` are those of a halted template before."""
    record = TemplateCause(before, "0", commits=tuple(map(id, commits))) if before else None
    goal = before if goal == "" else goal
    return WantedCause(source, PLACES, record, goal, skips_before=bool(commits))


def rendered(templates: Mapping[int, str]) -> dict[CommitId, RenderedCommit]:
    return {
        id(number): RenderedCommit({}, {AGENT: template} if template else {})
        for number, template in templates.items()
    }


def search(
    history: BranchLine, cause: WantedCause, templates: Mapping[int, str]
) -> tuple[set[int], TemplateCause]:
    """The numbers of the commits that are rendered, and the record."""
    causes, known = {AGENT: cause}, dict[int, str]()
    while missing := template_causes.to_render(history, causes, rendered(known)):
        new = {number: templates[number] for number in (int(one, 16) for one in missing)}
        known |= new
    return set(known), template_causes.found(history, causes, rendered(known))[AGENT]


@pytest.mark.parametrize(
    ("history", "cause", "templates", "expected", "commits"),
    [
        (line(OWN), wanted("H"), {}, 2, (2,)),
        (line(OWN, OTHER), wanted("H"), {}, 2, (2,)),
        (line(OTHER, OWN), wanted("H"), {}, 3, (3,)),
        (line(SHARED, OWN), wanted("H"), {2: "P"}, 3, (3,)),
        (line(OWN, SHARED), wanted("H"), {2: "H"}, 2, (2,)),
        (line(OWN, OWN), wanted("H"), {2: "M"}, 3, (3, 2)),
        (line(OWN, OWN, OWN), wanted("H"), {3: "P"}, 4, (4,)),
        (line("base/kustomization.yaml"), wanted("H"), {}, 2, (2,)),
        (line(OWN, parent=0), wanted("H"), {0: "M"}, 2, (2,)),
        (line(OWN), wanted("H", None, None), {1: "P"}, 2, (2,)),
        (line(OWN), wanted("H", "B", "P", commits=(1,)), {}, 2, (2, 1)),
        (line(OWN, OWN), wanted("H", "B", "P", commits=(1,)), {2: "P"}, 3, (3,)),
        (line(OWN), wanted("H", None, None), {1: ""}, 2, (2,)),
        (line(OWN, OWN, OWN), wanted("H", None, None), {1: "P", 2: "H", 3: "P"}, 4, (4,)),
    ],
    ids=[
        "one commit",
        "a later commit of another agent",
        "an earlier commit of another agent",
        "an earlier commit of a shared file without effect",
        "a later commit of a shared file without effect",
        "two commits of the agent",
        "a revert of a revert",
        "a file that nothing names",
        "a rewritten branch",
        "no record",
        "on a halted template",
        "on the revert of a halted template",
        "a new agent",
        "a revert of a revert without a record",
    ],
)
def test_the_commit_of_a_template_is_the_one_that_changed_it(
    history: BranchLine,
    cause: WantedCause,
    templates: Mapping[int, str],
    expected: int,
    commits: tuple[int, ...],
) -> None:
    searched, found = search(history, cause, templates)
    assert searched == templates.keys()
    assert (found.source, found.exact) == ("H", True)
    assert (found.commit, found.author) == (id(expected), f"Author {expected}")
    assert found.subject == f"Change {expected}"
    assert found.commits == tuple(map(id, commits))


def test_a_template_that_no_commit_changed_has_no_new_record() -> None:
    causes = {AGENT: wanted("P", None, None)}
    assert not template_causes.found(line(SHARED), causes, rendered({1: "P"}))


def test_a_commit_that_cannot_be_rendered_leaves_one_of_several() -> None:
    found = template_causes.found(line(OWN, OWN), {AGENT: wanted("H")}, {})[AGENT]
    assert not found.exact
    assert found.commit == id(3)
    assert found.commits == (id(3), id(2))


@pytest.mark.parametrize(
    ("file", "before", "moves"),
    [
        (OWN, "a", False),
        (OWN, "", True),
        (SHARED, "a", True),
        ("agents/agent/kustomization.yaml", "a", True),
        (OTHER, "", False),
    ],
)
def test_before_a_commit_that_may_have_moved_a_template_each_commit_can_change_it(
    file: str, before: str, moves: bool
) -> None:
    """One that adds a file of the agent, or changes a file that names others."""
    info = CommitInfo(id(9), (id(4),), AT, "Author", "Change")
    newest = BranchCommit(info, info.subject, {file: FileChange(before, "b")})
    older = line(OTHER, OWN, OTHER).commits
    found = BranchLine(id(1), [newest, *older]).candidates(PLACES)
    touching = [] if file == OTHER else [newest]
    assert list(found) == [*touching, *(older if moves else [older[1]])]


def test_a_template_without_a_record_has_that_of_the_head_which_is_not_exact() -> None:
    one, head = manifest("1"), line(OWN).commits[0].info
    known = {KEY: TemplateCause("source", "commit")}
    found = template_causes.completed(bundle(one), {}, head)[KEY]
    assert (found.source, found.commit) == (template_digests.digest(one), head.id)
    assert (found.exact, found.commits) == (False, ())
    assert template_causes.completed(bundle(one), known, head) == known
    assert template_causes.completed(bundle(one), {}, None) == {}


def test_the_search_goes_back_to_the_last_record_that_was_applied() -> None:
    one = manifest("2")
    source = template_digests.digest(one)
    before = TemplateCause("before", "c1")

    def missing(cause: TemplateCause | None, lost: frozenset[CommitId] = frozenset()) -> Any:
        proof = TemplateProof("p", "c0", source="proven")
        state = DeployerState(
            causes={KEY: cause} if cause else {}, templates={KEY: TemplateHistory(proof)}
        )
        wanted = template_causes.wanted(bundle(one), state, live(None), lost)
        return wanted and (wanted[KEY].before, wanted[KEY].goal, wanted[KEY].skips_before)

    waits = replace(before, is_applied=False)
    same = replace(before, source=source)
    assert missing(before) == (before, "before", False)
    assert missing(waits) == (waits, "proven", True)
    assert missing(None) == (None, "proven", False)
    assert missing(same) == {}
    assert missing(same, frozenset({CommitId("c1")})) == (None, "proven", False)


@pytest.mark.parametrize(
    ("source", "commit", "skips"),
    [
        ("before", "", True),
        ("", "c1", True),
        ("other", "c2", False),
        ("other", "", False),
        ("", "", False),
    ],
)
def test_a_revert_goes_back_beyond_a_template_that_was_halted(
    source: str, commit: str, skips: bool
) -> None:
    halted = HaltedTemplate("hash", commit, 1.0, source=source)
    history = TemplateHistory(TemplateProof("p", "c0", source="proven"), halted=(halted,))
    state = DeployerState(causes={KEY: TemplateCause("before", "c1")}, templates={KEY: history})
    found = template_causes.wanted(bundle(manifest("2")), state, live(None))[KEY]
    expected = ("proven", True) if skips else ("before", False)
    assert (found.goal, found.skips_before) == expected
    # or only the DaemonSet states it, after the state was lost
    there = live_object("1", annotations={keys.HALTED: halted_templates.encoded([halted])})
    state = replace(state, templates={KEY: TemplateHistory(history.proof)})
    found = template_causes.wanted(bundle(manifest("2")), state, live(there))[KEY]
    assert (found.goal, found.skips_before) == expected


def test_a_commit_that_an_earlier_version_recorded_is_known_but_not_exact() -> None:
    one = manifest("2")
    source = template_digests.digest(one)

    def known(history: TemplateHistory) -> Mapping[Key, TemplateCause]:
        return template_causes.known(bundle(one), DeployerState(templates={KEY: history}))

    proof = TemplateProof("t", "c1", source=source)
    recorded = RecordedTemplate("t", source, "c2")
    assert known(TemplateHistory(proof)) == {KEY: TemplateCause(source, "c1", exact=False)}
    expected = {KEY: TemplateCause(source, "c2", exact=False)}
    assert known(TemplateHistory(proof, applied=recorded)) == expected
    assert known(TemplateHistory(proof, target=recorded)) == expected
    assert known(TemplateHistory(replace(proof, source="other"))) == {}
    assert known(TemplateHistory(replace(proof, commit=""))) == {}


@pytest.mark.parametrize(
    ("exact", "is_from_git", "commits"),
    [(True, True, ("c1", "c0")), (False, True, ()), (True, False, ())],
)
def test_a_template_has_the_commits_that_certainly_gave_it(
    exact: bool, is_from_git: bool, commits: tuple[str, ...]
) -> None:
    every = (CommitId("c1"), CommitId("c0"))
    cause = TemplateCause("source", "c1", commits=every, exact=exact)
    holder = None if is_from_git else ManifestOrigin(CommitId("c9"), "u", "ConfigMap source")
    context = PlanContext(Stamp("test", commit="c5", causes={KEY: cause}))
    found = git_template.read(replace(manifest("2"), holder=holder), None, context)
    assert found.commits == commits
    assert found.commit == ("c1" if is_from_git else "c9")


def calls_for(number: int) -> int:
    """The function calls that find the causes of so many agents, which one commit added."""
    files = {f"agents/agent-{n}/ds.yaml": FileChange("", "b") for n in range(number)}
    info = CommitInfo(id(2), (id(1),), AT, "Author", "All agents")
    history = BranchLine(id(1), [BranchCommit(info, info.subject, files)])
    causes = {
        Key("apps", "DaemonSet", "default", f"agent-{n}"): WantedCause(
            f"S{n}", frozenset({f"agents/agent-{n}", SHARED})
        )
        for n in range(number)
    }
    missing = rendered({1: ""})
    return costs.calls(template_causes.found, history, causes, missing)


def test_the_work_grows_as_the_number_of_agents_that_a_commit_adds() -> None:
    assert calls_for(200) < 2.2 * calls_for(100)
