"""A pull request is opened as each forge documents it, and its forge is found by the repository's address."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds import errors
from gitops_ds.forges import requests
from gitops_ds.forges.requests import Doing, Kind, Opening, Place
from gitops_ds.git import address
from gitops_ds.service import forge_discovery
from gitops_ds.service.forge_discovery import Found, Named

OPENING = Opening("gitops-ds/3c56cb5b2ef0", "main", "Revert", "why")
AS_GITHUB = {"head": OPENING.source, "base": "main", "title": "Revert", "body": "why"}
AS_GITLAB = {
    "source_branch": OPENING.source,
    "target_branch": "main",
    "remove_source_branch": True,
    "title": "Revert",
    "description": "why",
}


@pytest.mark.parametrize(
    ("kind", "path", "body", "reply"),
    [
        (Kind.GITHUB, "repos/a/b/pulls", AS_GITHUB, "html_url"),
        (Kind.GITEA, "repos/a/b/pulls", AS_GITHUB, "html_url"),
        (Kind.FORGEJO, "repos/a/b/pulls", AS_GITHUB, "html_url"),
        (Kind.GITLAB, "projects/a%2Fb/merge_requests", AS_GITLAB, "web_url"),
    ],
)
def test_each_forge_is_asked_as_it_wants(kind: Kind, path: str, body: dict[str, Any], reply: str) -> None:
    dialect = requests.dialect(kind)
    request = dialect.open(Place("a/b"), OPENING)
    assert (request.method, request.path, request.body) == ("POST", path, body)
    assert dialect.opened({reply: "https://forge.example/7"}) == "https://forge.example/7"
    with pytest.raises(KeyError):
        dialect.opened({})
    assert dialect.needed(Doing.OPEN, of_job=False)


@pytest.mark.parametrize(
    ("repository", "named", "found"),
    [
        ("https://github.com/a/b.git", Named(), Found(Kind.GITHUB, "https://api.github.com", "a/b")),
        ("git@gitlab.example:a/b/c.git", Named(), Found(Kind.GITLAB, "https://gitlab.example/api/v4", "a/b/c")),
        ("https://git.example/a/b", Named(Kind.GITEA), Found(Kind.GITEA, "https://git.example/api/v1", "a/b")),
        ("https://git.example/a/b", Named(Kind.GITEA, project="c/d"), Found(Kind.GITEA, "https://git.example/api/v1", "c/d")),
    ],
)
def test_a_forge_is_found(repository: str, named: Named, found: Found) -> None:
    assert forge_discovery.find(address.parse(repository), named) == found


@pytest.mark.parametrize(
    ("repository", "named", "said"),
    [
        ("https://git.example/a/b", Named(), "--forge github, gitlab, gitea or forgejo"),
        ("/srv/fleet", Named(Kind.GITEA), "is local"),
        ("https://git.example/a/b", Named(Kind.GITEA, "http://git.example"), "--allow-http"),
    ],
)
def test_one_that_can_not_be_found_is_asked_for(repository: str, named: Named, said: str) -> None:
    with pytest.raises(errors.UsageError, match=said):
        forge_discovery.find(address.parse(repository, allow_local=True), named)
