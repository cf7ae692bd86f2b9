"""Texts that people and servers give us: addresses, revisions, version ranges, git's complaints."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.source.git import address, error_messages, revision, semver
from gitops_ds.source.git.credentials.credential_values import Password
from gitops_ds.source.git.revision import (
    Ancestor,
    Branch,
    Commit,
    Head,
    Ref,
    Reflog,
    Semver,
    ShortName,
    Tag,
)

A, B, C = (CommitId(c * 40) for c in "abc")


@pytest.mark.parametrize(
    ("text", "url", "origin"),
    [
        (
            "https://git.example.com/a/b.git",
            "https://git.example.com/a/b.git",
            "https://git.example.com",
        ),
        (
            "https://git.example.com:8443/a",
            "https://git.example.com:8443/a",
            "https://git.example.com:8443",
        ),
        ("https://[::1]:8443/a", "https://[::1]:8443/a", "https://[::1]:8443"),
        (
            "https://me:p%40ss@git.example.com/a",
            "https://git.example.com/a",
            "https://git.example.com",
        ),
        ("ssh://git@git.example.com/a", "ssh://git@git.example.com/a", "ssh://git.example.com"),
        (
            "ssh://git@git.example.com:2222/a",
            "ssh://git@git.example.com:2222/a",
            "ssh://git.example.com:2222",
        ),
        (
            "git@git.example.com:team/a.git",
            "git@git.example.com:team/a.git",
            "ssh://git.example.com",
        ),
    ],
)
def test_an_address_is_what_git_gets_and_what_people_see(text: str, url: str, origin: str) -> None:
    parsed = address.parse(text)
    assert (parsed.url, parsed.display, parsed.origin) == (url, url, origin)


def test_a_password_is_removed_from_a_url() -> None:
    assert address.parse("https://me:p%40ss@h.example/a").login == Password("p@ss", "me")
    assert address.parse("https://token@h.example/a").login == Password("token")
    assert "token" not in repr(address.parse("https://token@h.example/a"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " https://h/a",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=x@h:a",
        "ssh://-oProxyCommand=touch/a",
        "ssh://git@-oProxyCommand=touch/a",
        "ssh://-oX@h/a",
        "git@-oProxyCommand=x:a",
        "git@h:--upload-pack=x",
        "ssh://git@h/--upload-pack=x",
        "ssh://me:secret@h/a",
        "ext::sh -c touch% /tmp/x",
        "fd::17",
        "http://me:secret@h/a",
        "git://h/a",
        "ftp://h/a",
        "https:///a",
        "https://h",
        "https://h:99999/a",
        "https://h/a?token=secret",
        "https://h/a#secret",
        "https://h/a\nb",
        "https://h$(x)/a",
        "file://host/a",
    ],
)
def test_an_invalid_address_is_rejected_without_printing_secrets(text: str) -> None:
    with pytest.raises(errors.GitopsError) as caught:
        address.parse(text, allow_local=True)
    assert caught.value.exit_code == 2
    assert "me:secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["/srv/git/a", "./a", "file:///srv/git/a", "../a"])
def test_a_local_path_is_accepted_only_if_allowed(text: str) -> None:
    with pytest.raises(errors.SourceDenied, match="allowLocal"):
        address.parse(text)
    assert address.parse(text, allow_local=True).url.startswith("file:///")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (None, Head()),
        ("", Head()),
        ("HEAD", Head()),
        ("a" * 40, Commit(A)),
        ("a" * 64, Commit(CommitId("a" * 64))),
        ("refs/pull/420/head", Ref("refs/pull/420/head")),
        ("release/1.2", ShortName("release/1.2")),
        ("abc1234", ShortName("abc1234")),
        ("origin/main", ShortName("origin/main")),
        ("@", Head()),
        ("HEAD~1", Ancestor(Head(), "~1")),
        ("@~", Ancestor(Head(), "~")),
        ("HEAD^^2~3", Ancestor(Head(), "^^2~3")),
        ("v1^{}", Ancestor(ShortName("v1"), "^{}")),
        ("v1.2^{commit}", Ancestor(ShortName("v1.2"), "^{commit}")),
        ("a" * 40 + "~2", Ancestor(Commit(A), "~2")),
        ("refs/tags/v1^", Ancestor(Ref("refs/tags/v1"), "^")),
        ("@{u}", Reflog("@{u}")),
        ("main@{upstream}~1", Ancestor(Reflog("main@{upstream}"), "~1")),
        ("main@{2 days ago}", Reflog("main@{2 days ago}")),
    ],
)
def test_a_revision_on_the_command_line(text: str | None, meant: revision.RevisionSpec) -> None:
    assert revision.parse(text) == meant


HOSTILE = [
    "--upload-pack=touch x",
    "-x",
    "a..b",
    "a b",
    "a~1",
    "a^",
    "a:b",
    "a@{1}",
    "a.lock",
    "/a",
    "a/",
    "a//b",
    ".a",
    "a\n",
    "a*",
    "@",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_git_could_read_as_something_else_is_refused(name: str) -> None:
    for settings in ({"branch": name}, {"tag": name}, {"name": name}):
        with pytest.raises(errors.UsageError, match="branch or tag"):
            revision.from_settings(**settings)


NO_REVISION = [name for name in HOSTILE if name not in {"a~1", "a^", "a@{1}", "@"}]


@pytest.mark.parametrize(
    "name",
    [
        *NO_REVISION,
        "--x~1",
        "-x@{1}",
        "a..b~1",
        "HEAD^{/fix}",
        ":/fix",
        "HEAD:file",
        "a@{$(x)}",
        "~1",
        "^a",
    ],
)
def test_an_invalid_revision_is_rejected_on_the_command_line(name: str) -> None:
    with pytest.raises(errors.UsageError, match="branch or tag"):
        revision.parse(name)


@pytest.mark.parametrize(
    ("settings", "meant"),
    [
        ({"commit": A, "name": "refs/x", "semver": "1.x", "tag": "t", "branch": "b"}, Commit(A)),
        ({"name": "refs/x", "semver": "1.x", "tag": "t", "branch": "b"}, Ref("refs/x")),
        ({"semver": "1.x", "tag": "t", "branch": "b"}, Semver("1.x")),
        ({"tag": "t", "branch": "b"}, Tag("t")),
        ({"branch": "b"}, Branch("b")),
        ({}, Head()),
    ],
)
def test_settings_have_the_precedence_of_flux(
    settings: dict[str, str], meant: revision.RevisionSpec
) -> None:
    assert revision.from_settings(**settings) == meant


REFS = {
    "HEAD": A,
    "refs/heads/main": A,
    "refs/heads/both": A,
    "refs/tags/both": B,
    "refs/tags/v1.2.0": B,
    "refs/tags/v1.3.0": B,
    "refs/tags/v1.3.0^{}": C,
    "refs/tags/v2.0.0-rc.1": A,
    "refs/pull/1/head": C,
}


@pytest.mark.parametrize(
    ("spec", "commit"),
    [
        (Head(), A),
        (Branch("main"), A),
        (Branch("v1.2.0"), None),
        (Tag("both"), B),
        (Tag("v1.3.0"), C),
        (ShortName("both"), A),
        (ShortName("v1.3.0"), C),
        (Ref("refs/pull/1/head"), C),
        (Ref("refs/tags/v1.3.0"), C),
        (Semver("^1"), C),
        (Semver("<1.3"), B),
        (Semver("2.x"), None),
        (Semver(">=2.0.0-0"), A),
    ],
)
def test_a_revision_at_a_server(spec: revision.RevisionSpec, commit: CommitId | None) -> None:
    assert revision.resolve(spec, REFS) == commit


def test_an_unknown_revision_is_reported_with_similar_names() -> None:
    assert "did you mean main?" in str(revision.unknown(Branch("mian"), REFS, "https://h/a"))
    assert "branches both, main" in str(revision.unknown(Branch("zzzz"), REFS, "https://h/a"))
    assert "has no commit yet" in str(revision.unknown(Head(), {}, "https://h/a"))


TAGS = {name: id for name, id in REFS.items() if name.startswith("refs/tags/")}


@pytest.mark.parametrize(
    ("spec", "refs", "words"),
    [
        (Tag("v9"), {}, "has no tag v9; it has no tag"),
        (Semver("^9"), {}, "has no tag in the version range ^9; it has no tag: push one, such as "),
        (Tag("zzzz"), TAGS, "it has the tags both, v1.2.0, v1.3.0, v2.0.0-rc.1"),
        (Semver("2.x"), TAGS, "it has the tags both, v1.2.0, v1.3.0, v2.0.0-rc.1"),
        (Tag("v1.3.9"), TAGS, "did you mean v1.3.0"),
    ],
)
def test_an_unknown_tag_is_reported_with_the_tags_of_the_server(
    spec: revision.RevisionSpec, refs: dict[str, CommitId], words: str
) -> None:
    assert words in str(revision.unknown(spec, refs, "https://h/a"))


@pytest.mark.parametrize(
    ("range_", "inside", "outside"),
    [
        ("^1.2", "1.2.0 1.9.9", "1.1.9 2.0.0 1.3.0-rc.1 2.0.0-rc.1"),
        ("^0.2.3", "0.2.3 0.2.9", "0.3.0 0.2.2"),
        ("^0.0", "0.0.0 0.0.9", "0.1.0"),
        ("~1.2", "1.2.0 1.2.9", "1.3.0"),
        ("~1", "1.0.0 1.9.0", "2.0.0"),
        ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
        (">=1 <2", "1.0.0 1.9.9", "0.9.9 2.0.0"),
        (">=1, <2", "1.0.0", "2.0.0"),
        (">1", "2.0.0", "1.9.9 1.0.0"),
        ("<=1.2", "1.2.9 0.1.0", "1.3.0"),
        ("1.x", "1.0.0 1.9.9", "2.0.0"),
        ("1.2.*", "1.2.5", "1.3.0"),
        ("*", "0.0.1 9.9.9", "1.0.0-rc.1"),
        ("1.2.3", "1.2.3 v1.2.3 1.2.3+build.5", "1.2.4"),
        ("1.2.3 || ^3", "1.2.3 3.4.5", "2.0.0"),
        (">=1.0.0 !=1.5.0", "1.4.0", "1.5.0"),
        (">=1.0.0-0", "1.0.0-alpha 1.0.0 2.0.0-rc.1", "0.9.9"),
        ("^1.0.0-rc.1", "1.0.0-rc.2 1.5.0", "1.0.0-rc.0 2.0.0-rc.1"),
    ],
)
def test_a_version_range(range_: str, inside: str, outside: str) -> None:
    parsed = semver.parse(range_)
    for text, expected in [(t, True) for t in inside.split()] + [
        (t, False) for t in outside.split()
    ]:
        version = semver.version(text)
        assert version is not None
        assert semver.fits(parsed, version) is expected, text


@pytest.mark.parametrize("text", ["", "a", "1.2.3.4", ">=", "1 ||", "^^1", "1.2.3 foo", "!=1"])
def test_an_invalid_range_is_rejected(text: str) -> None:
    with pytest.raises(errors.UsageError, match="range"):
        semver.parse(text)


def test_versions_have_the_order_of_the_specification() -> None:
    order = (
        "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 "
        "1.0.0-rc.1 1.0.0 1.0.1 1.10.0 2.0.0"
    )
    versions = [semver.version(t) for t in order.split()]
    assert sorted((v for v in reversed(versions) if v), key=lambda v: v) == versions


def test_a_number_of_a_tag_has_any_length_and_ascii_digits() -> None:
    """The author of a tag ends no poll of its repository by it."""
    long = "v1.0.0-" + "1" * 5000
    tags = ["v1.0.0-2", long, "v1.0.0-01"]
    assert semver.best(semver.parse(">=1.0.0-0"), tags) == long
    assert semver.version("1.1\N{ARABIC-INDIC DIGIT NINE}.0") is None


@given(st.text())
def test_every_failure_of_a_parser_is_a_usage_error(text: str) -> None:
    for parse in (address.parse, revision.parse, semver.parse):
        with contextlib.suppress(errors.UsageError, errors.SourceDenied):
            parse(text)
    semver.version(text)


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        ("fatal: write error: No space left on device", errors.SourceError, "no space left"),
        ("error: file write error: File too large", errors.SourceTooLarge, "size limit"),
        (
            "fatal: detected dubious ownership in repository at '/x'",
            errors.SourceDenied,
            "another user",
        ),
        (
            "fatal: unable to access 'https://h/': Could not resolve host: h",
            errors.SourceUnreachable,
            "DNS",
        ),
        (
            "ssh: Could not resolve hostname h: Name or service not known",
            errors.SourceUnreachable,
            "DNS",
        ),
        (
            "ssh: connect to host h port 22: Connection refused",
            errors.SourceUnreachable,
            "unreachable",
        ),
        (
            "kex_exchange_identification: Connection closed by remote host",
            errors.SourceUnreachable,
            "unreachable",
        ),
        ("fatal: transport 'file' not allowed", errors.SourceDenied, "transport file"),
        (
            "remote: Repository not found.\nfatal: repository 'https://h/a' not found",
            errors.SourceDenied,
            "repository not found",
        ),
        (
            "error: object 12: hasDotdot: contains '..'\nfatal: fsck error in packed object",
            errors.SourceError,
            "fsck rejects",
        ),
        ("error: packfile /c/p.pack cannot be accessed", errors.SourceError, "delete /cache"),
        ("fatal: something new", errors.SourceError, "git reports: something new"),
        ("", errors.SourceError, "git reports: nothing"),
    ],
)
def test_each_complaint_of_git_becomes_a_sentence(
    words: str, kind: type[errors.SourceError], sentence: str
) -> None:
    error = error_messages.translate(
        error_messages.CommandFailure("fetch from", "https://h/a", words, "/cache", 5)
    )
    assert type(error) is kind
    assert sentence in str(error)
    assert "https://h/a" in str(error)


def test_a_sentence_holds_no_secret_and_no_control_character() -> None:
    words = "fatal: \x1b[31mbad\x07 https://me:hunter2@h/a swordfish"
    sentence = str(
        error_messages.translate(error_messages.CommandFailure("read", "h", words), ("swordfish",))
    )
    assert sentence == "can't read h: git reports: bad https://h/a ***"
