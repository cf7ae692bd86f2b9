"""The page shows the condition of each followed repository above its agents, and above an agent the
trouble of its own.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from gitops_ds.controller.observer import Observer
from gitops_ds.core import errors
from gitops_ds.core.events.base import WatchFailed
from gitops_ds.core.events.deployer import GitTimed
from gitops_ds.core.objects import NODE, CommitId
from gitops_ds.core.sources.source_status import EFFECTS, Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.service.page_view import RepositoryView, Shown
from gitops_ds.status.tracker import StatusTracker
from gitops_ds.testing import simulator
from tests.page import fleets

COMMIT = "89c52d7634e9" + "0" * 28


@pytest.mark.sampled
@pytest.mark.parametrize("condition", Condition)
def test_a_commit_that_is_not_applied_is_named_on_the_overview_and_on_the_agents_page(
    condition: Condition,
) -> None:
    message = f"commit {COMMIT[:12]} is not applied: <b>a.yaml</b>"
    status = SourceStatus(
        "fleet", "example.com/fleet", "main", condition, message, newest=CommitId(COMMIT), since=1.0
    )
    show = fleets.story(10)
    show.found = tuple(replace(agent, source=status) for agent in show.found)
    show.followed = [status]
    is_trouble = EFFECTS[condition].tone in ("bad", "warn")
    first = show.found[0].key
    for path, expected in (("", True), (f"agents/{first.namespace}/{first.name}", is_trouble)):
        html = fleets.html(show, path)
        assert ("example.com/fleet" in html) == expected
        assert ('role="alert"' in html) == is_trouble
        assert "<b>a.yaml</b>" not in html
        assert f"commit {COMMIT[:12]} is not applied" in html or not is_trouble


@pytest.mark.parametrize(
    ("looked", "words"),
    [
        (86_400.0, "Last look at Git</dt><dd><time datetime="),
        (0.0, "Last look at Git</dt><dd><span"),
    ],
)
def test_the_overview_shows_the_time_of_the_last_fetch(looked: float, words: str) -> None:
    show = fleets.story(10)
    show.followed = [
        SourceStatus(
            "fleet", "example.com/fleet", "main", Condition.SYNCED, since=1.0, looked=looked
        )
    ]
    html = fleets.html(show, "")
    assert words in html
    assert ("1970-01-02T00:00:00Z" in html) == bool(looked)


def observed() -> tuple[Shown, Observer]:
    """The view of a service that has not read its cluster yet."""
    cluster = simulator.SimulatedCluster()
    clock = cluster.server.now
    observer = Observer(cluster.client(), lambda _: None, clock=clock, chance=lambda: 0.5)
    return Shown("", StatusTracker(observer, dict, clock), tuple), observer


def test_the_cluster_has_the_name_of_the_settings_or_else_that_of_a_repository() -> None:
    async def names() -> list[str]:
        (_, observer), found = observed(), list[str]()
        for of_settings, of_repositories in (
            ("main", ("eu-1",)),
            ("", ("eu-1",)),
            ("", ("", "eu-1")),
            ("", ("",)),
            ("", ()),
        ):
            views = tuple(RepositoryView(cluster=name) for name in of_repositories)
            tracker = StatusTracker(observer, dict, lambda: 0.0)
            found.append(Shown(of_settings, tracker, partial(tuple, views)).cluster)
        return found

    assert asyncio.run(names()) == ["main", "eu-1", "eu-1", "cluster", "cluster"]


def test_an_open_page_shows_a_look_at_git_at_most_once_a_minute() -> None:
    async def looks() -> list[int]:
        (shown, _), versions = observed(), list[int]()
        for at, well in (
            (100.0, True),
            (130.0, True),
            (170.0, True),
            (240.0, False),
            (250.0, True),
        ):
            shown.handle(GitTimed(at, 0.1, well))
            versions.append(shown.version)
        return versions

    assert asyncio.run(looks()) == [2, 2, 3, 3, 4]


def test_a_cluster_that_is_not_read_yet_is_not_an_empty_cluster() -> None:
    async def scene() -> tuple[str, str, bool]:
        shown, observer = observed()
        before, version = shown.unread, shown.version
        shown.handle(WatchFailed(1.0, NODE, errors.Forbidden("nodes is forbidden"), 1.0))
        denied = shown.unread
        async with shown.followed():
            observer.synced.set()
            await shown.changed(version + 1)
        return before, denied, shown.unread == ""

    assert asyncio.run(scene()) == (
        "the first lists are not read",
        "nodes: nodes is forbidden",
        True,
    )

    show = fleets.Show(not_read="nodes: nodes is forbidden")
    for path in ("", "wall"):
        html = fleets.html(show, path)
        assert "Cluster not read yet" in html
        assert "nodes: nodes is forbidden" in html
        assert "No DaemonSet is in this cluster yet" not in html
    with pytest.raises(errors.NoMatch, match="the cluster is not read yet: nodes"):
        fleets.html(show, "agents/logging/agent")
    assert "No DaemonSet is in this cluster yet" in fleets.html(fleets.Show(), "")
    assert "of 0" not in fleets.html(fleets.Show(), "nodes")
