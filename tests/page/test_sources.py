"""The page shows the condition of each followed repository above its agents, and above an agent the trouble of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gitops_ds.model.objects import CommitId
from gitops_ds.model.source_status import EFFECTS, Condition, SourceStatus
from gitops_ds.web.page.book import Book
from tests.page import fleets

COMMIT = "89c52d7634e9" + "0" * 28


def drawn(show: fleets.Show, path: str) -> str:
    return asyncio.run(Book(show).page(path, {})).html.decode()


@pytest.mark.parametrize("condition", Condition)
def test_a_commit_that_is_not_applied_is_named_on_the_overview_and_on_the_agents_page(condition: Condition) -> None:
    message = f"commit {COMMIT[:12]} is not applied: <b>a.yaml</b>"
    status = SourceStatus("fleet", "example.com/fleet", "main", condition, message, newest=CommitId(COMMIT), since=1.0)
    show = fleets.story(10)
    show.found = tuple(replace(agent, source=status) for agent in show.found)
    show.followed = [status]
    is_trouble = EFFECTS[condition].tone in ("bad", "warn")
    first = show.found[0].key
    for path, expected in (("", True), (f"agents/{first.namespace}/{first.name}", is_trouble)):
        html = drawn(show, path)
        assert ("example.com/fleet" in html) == expected
        assert ('role="alert"' in html) == is_trouble
        assert "<b>a.yaml</b>" not in html
        assert f"commit {COMMIT[:12]} is not applied" in html or not is_trouble
