"""A pull request is opened as each forge documents it, and its forge is found by the repository's
address.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.forges import forge_access
from gitops_ds.forges.contract import ForgeKind, NewPullRequest, PullRequestRef, RequestPurpose
from gitops_ds.service.git import forge_discovery
from gitops_ds.service.git.forge_discovery import DiscoveredForge, NamedForge
from gitops_ds.source.git import address

OPENING = NewPullRequest("gitops-ds/3c56cb5b2ef0", "main", "Revert", "why")
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
        (ForgeKind.GITHUB, "repos/a/b/pulls", AS_GITHUB, "html_url"),
        (ForgeKind.GITEA, "repos/a/b/pulls", AS_GITHUB, "html_url"),
        (ForgeKind.FORGEJO, "repos/a/b/pulls", AS_GITHUB, "html_url"),
        (ForgeKind.GITLAB, "projects/a%2Fb/merge_requests", AS_GITLAB, "web_url"),
    ],
)
def test_each_forge_gets_its_own_form_of_request(
    kind: ForgeKind, path: str, body: dict[str, Any], reply: str
) -> None:
    api = forge_access.api(kind)
    request = api.open_pull_request(PullRequestRef("a/b"), OPENING)
    assert (request.method, request.path, request.body) == ("POST", path, body)
    assert api.read_url({reply: "https://forge.example/7"}) == "https://forge.example/7"
    with pytest.raises(KeyError):
        api.read_url({})
    assert api.required_permission(RequestPurpose.OPEN_PULL_REQUEST, of_job=False)
    assert any("a-token" in value for value in api.headers("a-token", of_job=False).values())


@pytest.mark.parametrize(
    ("repository", "named", "found"),
    [
        (
            "https://github.com/a/b.git",
            NamedForge(),
            DiscoveredForge(ForgeKind.GITHUB, "https://api.github.com", "a/b"),
        ),
        (
            "git@gitlab.example:a/b/c.git",
            NamedForge(),
            DiscoveredForge(ForgeKind.GITLAB, "https://gitlab.example/api/v4", "a/b/c"),
        ),
        (
            "https://git.example/a/b",
            NamedForge(ForgeKind.GITEA),
            DiscoveredForge(ForgeKind.GITEA, "https://git.example/api/v1", "a/b"),
        ),
        (
            "https://git.example/a/b",
            NamedForge(ForgeKind.GITEA, project="c/d"),
            DiscoveredForge(ForgeKind.GITEA, "https://git.example/api/v1", "c/d"),
        ),
    ],
)
def test_a_forge_is_found(repository: str, named: NamedForge, found: DiscoveredForge) -> None:
    assert forge_discovery.find(address.parse(repository), named) == found


@pytest.mark.parametrize(
    ("repository", "named", "message"),
    [
        (
            "https://git.example/a/b",
            NamedForge(),
            "--forge to one of github, gitlab, gitea, forgejo",
        ),
        ("/srv/fleet", NamedForge(ForgeKind.GITEA), "is local"),
        (
            "https://git.example/a/b",
            NamedForge(ForgeKind.GITEA, "http://git.example"),
            "--allow-http",
        ),
    ],
)
def test_an_unknown_forge_must_be_named(repository: str, named: NamedForge, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        forge_discovery.find(address.parse(repository, allow_local=True), named)
