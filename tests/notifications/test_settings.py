"""Receivers of notifications in the settings, and the address of a repository's forge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.errors import SettingsError
from gitops_ds.core.events.definition import Topic
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.notify.notifications import MessageFormat
from gitops_ds.service.git import forge_discovery
from gitops_ds.service.settings import service
from gitops_ds.service.settings.base import decode
from gitops_ds.service.settings.repository import ForgeSettings
from gitops_ds.service.settings.service import ReceiverSettings
from gitops_ds.source.git import address


def test_a_receiver_gets_every_topic_unless_it_selects_some() -> None:
    assert service.parse({"notify": [{"name": "a", "urlFile": "/u"}]}).notify == (
        ReceiverSettings("a", "/u"),
    )
    receiver = {
        "name": "b",
        "urlFile": "/u",
        "format": "slack",
        "on": ["failed"],
        "secretFile": "/s",
        "maxPerMinute": 3,
    }
    assert service.parse({"notify": [receiver]}).notify == (
        ReceiverSettings("b", "/u", MessageFormat.SLACK, frozenset([Topic.FAILED]), "/s", 3),
    )
    twice = [{"name": "a", "urlFile": "/u"}, {"name": "a", "urlFile": "/v"}]
    with pytest.raises(SettingsError, match="a is used twice"):
        service.parse({"notify": twice})


@pytest.mark.parametrize(
    "line",
    [
        "notify: [{name: a}]",
        "notify: [{name: a, url: 'https://example.com'}]",
        "notify: [{name: a, urlFile: u, on: [everything]}]",
        "repository: {url: 'https://example.com/a', forge: {kind: github, token: abc}}",
        "repository: {url: 'https://example.com/a', forge: {kind: github}}",
    ],
)
def test_secrets_are_names_of_files_and_other_shapes_are_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(line)
    with pytest.raises(SettingsError, match=r"settings\.yaml:1:"):
        service.read(str(file))


@pytest.mark.parametrize("key", ["on", '"on"'])
def test_the_key_on_needs_no_quotes(tmp_path: Path, key: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"notify: [{{name: a, urlFile: u, {key}: [failed]}}]")
    assert service.read(str(file)).notify[0].topics == {Topic.FAILED}


def test_every_topic_is_in_the_schema() -> None:
    from gitops_ds.checks.schema import repository_files

    schema: Any = repository_files.schema("settings")
    assert set(schema["properties"]["notify"]["items"]["properties"]["on"]["items"]["enum"]) == set(
        Topic
    )


@pytest.mark.parametrize(
    ("repository", "forge", "place"),
    [
        (
            "https://github.com/acme/agents.git",
            {"kind": "github"},
            ("https://api.github.com", "acme/agents"),
        ),
        (
            "git@github.com:acme/agents.git",
            {"kind": "github"},
            ("https://api.github.com", "acme/agents"),
        ),
        (
            "ssh://git@gitlab.example:2222/a/b/c",
            {"kind": "gitlab"},
            ("https://gitlab.example/api/v4", "a/b/c"),
        ),
        (
            "https://git.example:3000/acme/agents",
            {"kind": "gitea"},
            ("https://git.example:3000/api/v1", "acme/agents"),
        ),
        (
            "/srv/fleet.git",
            {"kind": "forgejo", "url": "http://127.0.0.1:3000", "project": "a/b"},
            ("http://127.0.0.1:3000/api/v1", "a/b"),
        ),
        (
            "ssh://git@git.example/x/y",
            {"kind": "gitea", "url": "http://git.internal", "project": "a/b", "allowHttp": True},
            ("http://git.internal/api/v1", "a/b"),
        ),
    ],
)
def test_the_address_of_the_forge_is_derived_from_the_repository(
    repository: str, forge: dict[str, Any], place: tuple[str, str]
) -> None:
    settings = decode(ForgeSettings, {"tokenFile": "/t", **forge})
    forge_place = forge_discovery.of_settings(address.parse(repository, allow_local=True), settings)
    assert (forge_place.url, forge_place.project) == place


@pytest.mark.parametrize(
    ("repository", "forge", "message"),
    [
        ("/srv/fleet.git", ForgeSettings(ForgeKind.GITEA, "/t"), "is local: set the forge"),
        (
            "https://git.example/a/b",
            ForgeSettings(ForgeKind.GITEA, "/t", "http://git.example"),
            "allowHttp",
        ),
        (
            "https://git.example/a/b",
            ForgeSettings(ForgeKind.GITEA, "/t", "https://user:pw@git.example"),
            "forge: url",
        ),
    ],
)
def test_a_forge_that_can_not_be_found_or_would_show_the_token_is_refused(
    repository: str, forge: ForgeSettings, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        forge_discovery.of_settings(address.parse(repository, allow_local=True), forge)
