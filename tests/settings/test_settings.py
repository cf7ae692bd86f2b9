"""The settings file: what it means, and what is refused."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_ds.core.errors import SettingsError
from gitops_ds.service.git import git_auth
from gitops_ds.service.settings import service
from gitops_ds.service.settings.base import SettingsGroup
from tests.docs.sources import PARSED, attributes


@pytest.mark.parametrize(
    ("line", "seconds"), [("", 20.0), ("jitter: 25%", 50.0), ("jitter: 7", 7.0)]
)
def test_jitter_is_a_share_of_the_interval_or_seconds(
    tmp_path: Path, line: str, seconds: float
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"repository:\n  url: https://example.com/a\n  interval: 200s\n  {line}\n")
    assert service.read(str(file)).repositories[0].jitter_seconds == seconds


URL = "url: https://example.com/a"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"repository:\n  {URL}\n  intervall: 5s\n", r"3:3: .*interval"),
        (f"repositories:\n  - {URL}\n    intervall: 5s\n", r"3:5: .*interval"),
        ("templates: [a]", "1:"),
        ("templates: {kinds: [Pod]}", "1:"),
        ("apply: {allow: {namespace: [a]}}", "1:"),
        ("startupTaints: {taint: a}", "1:"),
        ("startupTaints: {taint: a:Evict}", "1:"),
        ("startupTaints: {alsoRemove: [a:b]}", "1:"),
        ("startupTaints: {enforce: always}", "1:"),
        ("startupTaints: {taint: a=b:NoSchedule}", "1:"),
    ],
)
def test_what_is_invalid_is_refused_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=rf"settings\.yaml:{place}"):
        service.read(str(file))


def test_several_repositories_are_a_list_with_the_same_keys() -> None:
    (first, second) = service.parse(
        {
            "repositories": [
                {"url": "https://example.com/a"},
                {"url": "https://example.com/b", "path": "x"},
            ]
        }
    ).repositories
    assert (first.url, second.url, second.path) == (
        "https://example.com/a",
        "https://example.com/b",
        "x",
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"repository": {"url": "a"}, "repositories": [{"url": "b"}]}, "write one of them"),
        ({"repositories": [{"url": "a"}, {"url": "a"}]}, "a is listed twice"),
    ],
)
def test_a_repository_is_listed_once(document: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        service.parse(document)


def test_reverts_are_off_by_default_and_have_an_author() -> None:
    (one,) = service.parse({"repository": {"url": "https://example.com/a"}}).repositories
    assert not one.push
    assert (one.author.name, one.author.email) == ("gitops-ds", "gitops-ds@noreply.gitops-ds.io")


def test_commits_of_the_service_are_signed_where_signatures_are_required() -> None:
    repository = {
        "url": "https://example.com/a",
        "push": True,
        "verify": {"allowedSignersFile": "signers"},
    }
    with pytest.raises(SettingsError, match=r"set repository\.author\.signingKeyFile"):
        service.parse({"repository": repository})
    signed = {**repository, "author": {"signingKeyFile": "key"}}
    assert service.parse({"repository": signed}).repositories[0].push


def groups(of: type[SettingsGroup] = SettingsGroup) -> Iterator[type[SettingsGroup]]:
    for group in of.__subclasses__():
        yield group
        yield from groups(group)


@PARSED
def test_each_key_is_read() -> None:
    by_name = set(re.findall(r'\("(\w+_file)", ', inspect.getsource(git_auth)))
    unread = {
        f"{group.__name__}.{field}"
        for group in groups()
        for field in group.__struct_fields__
        if field not in attributes("service", "cli") | by_name
    }
    assert unread == set(), "a key without effect: read it in its user"
