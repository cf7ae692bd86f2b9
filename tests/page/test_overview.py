"""The overview by repository, the banner, the wall, and pages that do not exist."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.events.agents import RolloutStarted
from gitops_ds.core.events.commits import NewCommit
from gitops_ds.core.events.rollouts import StageOpened
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.sources.bundle import Pool, Requirement
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.rollouts.views import rollout_timing
from gitops_ds.rollouts.views.rollout_timing import RolloutTiming
from gitops_ds.service.page_view import EventFeed
from gitops_ds.service.web.page import overview, rendering
from gitops_ds.service.web.page.pages import Book
from gitops_ds.service.web.page.rows import AgentRow
from gitops_ds.status.agents import Agent
from tests.page import fleets
from tests.rollouts.rollout_world import SECOND
from tests.status.staged_world import FAST, watched

COMMIT = CommitId("89c52d7634e9" + "0" * 28)


def source(id: str, condition: Condition, message: str = "") -> SourceStatus:
    repository = f"git.example.com/{id}"
    return SourceStatus(
        id, repository, "main", condition, message, COMMIT, since=1.0, looked=fleets.NOW
    )


def owned(show: fleets.Show, *sources: SourceStatus) -> fleets.Show:
    """Every agent belongs to one of the repositories, the last one to none."""
    show.followed = list(sources)
    count = len(sources)
    by = (replace(one, source=sources[n % count]) for n, one in enumerate(show.found[:-1]))
    show.found = (*by, show.found[-1])
    return show


def test_agents_are_listed_by_repository_with_those_in_trouble_first() -> None:
    show = owned(
        fleets.story(10),
        source("well", Condition.SYNCED),
        source("typo", Condition.REJECTED, "not applied: unknown field"),
    )
    html = fleets.html(show, "")
    titles = re.findall(r"<h2>(\S+)", html)
    assert titles == ["git.example.com/typo", "git.example.com/well", "Not"]
    text = fleets.text(html)
    assert "Newest commit 89c52d7634e9" in text
    assert "Branch main" in text


def test_each_column_has_its_order_and_its_cell() -> None:
    html = fleets.html(fleets.story(10), "")
    head, _, body = html.partition("<thead>")[2].partition("</thead>")
    cells = body.partition("</tr>")[0]
    assert set(re.findall(r"\?sort=(\w+)", head)) == set(overview.SORTS), (
        "SORTS in overview.py and the head in overview.html"
    )
    of_head, of_row = (len(re.findall(r"<t[hd]\b", part)) for part in (head, cells))
    assert of_head == of_row, "overview.html: the head and the cells of a row"


def test_each_value_of_a_row_is_shown_or_read() -> None:
    folder = Path(overview.__file__).parent
    files = [*folder.glob("templates/*.html"), folder / "rows.py", folder / "overview.py"]
    read = {name for file in files for name in re.findall(r"\.(\w+)", file.read_text("utf-8"))}
    assert set(AgentRow.__struct_fields__) - read == set(), "add its cell to overview.html"


def test_a_single_cluster_without_repositories_has_no_titles() -> None:
    assert "<h2>" not in fleets.html(fleets.story(10), "").partition("<dialog")[0]


@pytest.mark.parametrize("path", ["", "nodes", "events", "wall", "agents/logging/fluent-bit"])
def test_every_page_has_the_banner_of_a_repository_in_trouble(path: str) -> None:
    message = "can't read git.example.com: no such host"
    show = owned(fleets.story(10), source("gone", Condition.UNREACHABLE, message))
    html = fleets.html(show, path)
    assert html.count('role="alert"') == 1
    assert "no such host" in html
    show.followed = [source("gone", Condition.SYNCED)]
    assert 'role="alert"' not in fleets.html(show, path)


def test_pages_for_strangers_have_no_banner() -> None:
    show = owned(fleets.story(10), source("gone", Condition.UNREACHABLE, "no such host"))
    for template, values in (
        ("login.html", {"wrong": ""}),
        ("problem.html", {"title": "Not allowed", "words": "no"}),
    ):
        assert b"no such host" not in Book(show).plain(template, values).html


def test_the_wall_has_a_tile_for_each_agent_those_in_trouble_first() -> None:
    html = fleets.html(fleets.story(20), "wall")
    names = re.findall(r'<section id="wr/[^"]*" class="tile h-(\w+)"', html)
    assert len(names) == 6
    assert names[0] == "failed"
    assert names[-1] == "healthy"
    assert "cols-3" in html


def test_the_wall_shows_the_halt_of_a_rollout() -> None:
    there = watched()
    there.world.bad_images.add(SECOND)
    there.commit(SECOND)
    there.rounds(60)
    text = fleets.text(fleets.html(fleets.Show(found=(there.agent(),)), "wall"))
    assert "Halted in stage canary: ImagePullBackOff" in text
    assert "stage canary (halted)" in text


def test_the_squares_of_a_tile_are_small_to_send() -> None:
    codes = ["", "o b", "x r1", "p r0"] * 1000
    drawn = str(rendering.squares(codes, 3.0))
    assert len(drawn) < 130_000
    assert drawn.count("h7v7h-7z") == 4000
    assert drawn.count("✕") == 1000
    assert rendering.squares([], 3.0) == ""


@pytest.mark.parametrize(("count", "shape"), [(1, 2.0), (7, 4.0), (96, 3.7), (4000, 9.0)])
def test_every_square_is_inside_of_its_drawing(count: int, shape: float) -> None:
    drawn = str(rendering.squares([""] * count, shape))
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', drawn)[0])
    places = [(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h", drawn)]
    assert len(set(places)) == count
    assert all(x + 8 <= width and y + 8 <= height for x, y in places)


def test_a_path_without_a_page_is_not_found() -> None:
    with pytest.raises(errors.NoMatch, match="no page at /no/such"):
        fleets.html(fleets.story(10), "no/such")


def test_pools_of_the_repository_group_the_map_as_soon_as_they_are_known() -> None:
    show = fleets.story(20)
    on = [fleets.node(f"n-{number}", "x", "a") for number in range(4)]
    for one in on:
        labels = one["metadata"]["labels"]
        labels["disk"] = labels.pop("node.kubernetes.io/pool")
    fleet = fleets.Fleet("one", "logging", ((fleets.template("one", "a:1"), fleets.OLD),))
    show.found = (fleets.agent(fleet, on),)
    book = Book(show)

    def html() -> str:
        return asyncio.run(book.page("agents/logging/one", {})).html.decode()

    assert "No node belongs to a pool" in html()
    show.grouped = [Pool("fast", (Requirement("disk", "In", ("x",)),))]
    show.version += 1
    assert "No node belongs to a pool" not in html()
    assert "<h3>fast" in html()


def timing(agent: Agent) -> RolloutTiming | None:
    return rollout_timing.timing(agent.seen, agent.health, agent.rollout)


def test_a_rollout_in_stages_has_a_beginning_a_batch_and_an_end() -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    found = timing(there.agent())
    assert found is not None
    assert found.since == pytest.approx(there.world.now, abs=60)
    assert found.batch == 1
    assert found.ends is not None
    assert found.ends > there.world.now
    text = fleets.text(fleets.html(fleets.Show(found=(there.agent(),)), "agents/logging/agent"))
    assert "1 node at once" in text
    assert "estimated end 20" in text


def test_a_wait_for_an_approval_has_no_estimated_end_and_a_freeze_has_one() -> None:
    policy = {**FAST, "freeze": [{"from": "2020-01-01", "to": "2099-01-01"}]}
    held = watched({**FAST, "stages": [{"name": "rest", "approval": {"from": ["team-a"]}}]})
    held.commit(SECOND)
    held.rounds(3)
    found = timing(held.agent())
    assert found is not None
    assert found.ends is None
    frozen = watched(policy)
    frozen.commit(SECOND)
    frozen.rounds(3)
    found = timing(frozen.agent())
    assert found is not None
    assert found.ends is not None


def test_a_rollout_without_stages_is_timed_by_its_pods() -> None:
    on = fleets.nodes(20)
    tags = (("a:1", fleets.OLD), ("a:2", fleets.NEW))
    templates = tuple((fleets.template("one", image), commit) for image, commit in tags)
    fleet = fleets.Fleet("one", "logging", templates, on=5)
    agent = fleets.agent(fleet, on)
    assert agent.health.state is HealthState.PROGRESSING
    found = timing(agent)
    assert found is not None
    assert found.since == fleets.NOW - 3600
    assert found.ends == pytest.approx(fleets.NOW + 15 * 3600 / 5)
    at_rest = fleets.agent(fleets.Fleet("one", "logging", templates), on)
    assert timing(at_rest) is None


def test_a_line_of_events_repeats_neither_object_nor_reason() -> None:
    feed = EventFeed()
    key = Key("apps", "DaemonSet", "logging", "agent")
    feed.handle(RolloutStarted(fleets.NOW, key, "uid", COMMIT, 2, 12))
    feed.handle(StageOpened(fleets.NOW, key, COMMIT, "canary", 2))
    feed.handle(NewCommit(fleets.NOW, COMMIT, "fluent-bit 4.0.3", "Dana"))
    arrived, opened, started = feed.events()
    assert arrived.words == "'fluent-bit 4.0.3' by Dana"
    assert opened.words == "89c52d7634e9: stage canary is open, 2 nodes"
    assert started.kind == "RolloutStarted"
    assert "RolloutStarted" not in started.words
    assert "logging/agent" not in started.words
