"""What is decided without a server: where a job runs, which token, which address, which report,
when to try again.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds import forges
from gitops_ds.checks.report import comment_page, markdown
from gitops_ds.checks.report.findings import ReportContext
from gitops_ds.core import errors
from gitops_ds.core.finding import Severity
from gitops_ds.core.values import replace
from gitops_ds.forges import ci_environment, forge_access, retries, sticky_comment
from gitops_ds.forges.ci_environment import CiEnvironment
from gitops_ds.forges.contract import Comment, ForgeApi, ForgeKind
from gitops_ds.forges.sticky_comment import Sticky
from tests.report import made

HEAD, MERGE = "a" * 40, "b" * 40
ACTIONS = {
    "GITHUB_REPOSITORY": "acme/agents",
    "GITHUB_API_URL": "https://api.github.com",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REF": "refs/pull/7/merge",
    "GITHUB_SHA": MERGE,
    "GITHUB_RUN_ID": "100",
    "GITHUB_RUN_ATTEMPT": "2",
}
OF_PULL = {"pull_request": {"number": 7, "head": {"sha": HEAD}}}
OF_RUN = {
    "workflow_run": {
        "id": 90,
        "run_attempt": 1,
        "event": "pull_request",
        "head_sha": HEAD,
        "head_branch": "fix",
        "head_repository": {"owner": {"login": "contributor"}},
        "html_url": "https://github.com/acme/agents/actions/runs/90",
        "pull_requests": [],
    }
}
GITLAB = {
    "CI_API_V4_URL": "https://gitlab.example/api/v4",
    "CI_PROJECT_ID": "42",
    "CI_MERGE_REQUEST_IID": "7",
    "CI_COMMIT_SHA": HEAD,
    "CI_PIPELINE_ID": "100",
    "CI_JOB_ID": "200",
    "CI_JOB_URL": "https://gitlab.example/acme/agents/-/jobs/200",
}
# The variables of a job on each forge.
JOBS: dict[ForgeKind, dict[str, str]] = {
    ForgeKind.GITHUB: ACTIONS,
    ForgeKind.GITLAB: GITLAB,
    ForgeKind.GITEA: {**ACTIONS, "GITEA_ACTIONS": "true"},
    ForgeKind.FORGEJO: {**ACTIONS, "GITEA_ACTIONS": "true", "FORGEJO_ACTIONS": "true"},
}


def apis(of: type[ForgeApi] = ForgeApi) -> Iterator[type[ForgeApi]]:
    for api in of.__subclasses__():
        yield api
        yield from apis(api)


def test_each_forge_has_a_kind() -> None:
    for module in pkgutil.iter_modules(forges.__path__, f"{forges.__name__}."):
        importlib.import_module(module.name)
    of_kinds = {type(forge_access.api(kind)) for kind in ForgeKind}
    assert set(apis()) == of_kinds, "ForgeKind, and forge_access.api, must have it"


@pytest.mark.parametrize("kind", ForgeKind)
def test_a_job_of_each_forge_is_recognized(kind: ForgeKind) -> None:
    job = ci_environment.read(JOBS[kind], {})
    assert (job.kind, job.number, bool(job.run)) == (kind, 7, True)


def test_a_job_of_a_pull_request_is_about_its_head_not_about_the_merge() -> None:
    link = "https://github.com/acme/agents/actions/runs/100"
    assert ci_environment.read(ACTIONS, OF_PULL) == CiEnvironment(
        ForgeKind.GITHUB, "https://api.github.com", "acme/agents", 7, HEAD, "", link, (100, 2)
    )
    assert ci_environment.read(ACTIONS, {}).number == 7
    assert ci_environment.read({**ACTIONS, "GITHUB_REF": "refs/heads/main"}, {}).number == 0


def test_a_job_after_another_workflow_is_about_that_ones_commit() -> None:
    link = "https://github.com/acme/agents/actions/runs/90"
    url, branch = "https://api.github.com", "contributor:fix"
    assert ci_environment.read(ACTIONS, OF_RUN) == CiEnvironment(
        ForgeKind.GITHUB, url, "acme/agents", 0, HEAD, branch, link, (90, 1)
    )
    own = {"workflow_run": {**OF_RUN["workflow_run"], "pull_requests": [{"number": 9}]}}
    assert ci_environment.read(ACTIONS, own).number == 9
    push = {"workflow_run": {**OF_RUN["workflow_run"], "event": "push"}}
    assert ci_environment.read(ACTIONS, push).branch == ""


@pytest.mark.parametrize(
    ("mark", "kind"), [("GITEA_ACTIONS", ForgeKind.GITEA), ("FORGEJO_ACTIONS", ForgeKind.FORGEJO)]
)
def test_gitea_and_forgejo_are_distinguished_from_github(mark: str, kind: ForgeKind) -> None:
    own = {"GITHUB_SERVER_URL": "https://git.example", "GITHUB_API_URL": "", mark: "true"}
    there = {**ACTIONS, **own, "GITHUB_REF": "refs/pull/7/head"}
    environment = ci_environment.read(there, {})
    assert (environment.kind, environment.url) == (kind, "https://git.example/api/v1")
    assert environment.number == 7


def test_a_job_of_gitlab() -> None:
    url, link = GITLAB["CI_API_V4_URL"], GITLAB["CI_JOB_URL"]
    expected = CiEnvironment(ForgeKind.GITLAB, url, "42", 7, HEAD, "", link, (100, 200))
    assert ci_environment.read(GITLAB, {}) == expected
    merged = {"CI_COMMIT_SHA": MERGE, "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD}
    of_a_fork = {**GITLAB, **merged, "CI_MERGE_REQUEST_PROJECT_ID": "41"}
    assert ci_environment.read(of_a_fork, {}) == replace(expected, project="41")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["number", "head", "sha", "id", "login"]), below)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["pull_request", "workflow_run"]), json_values),
    st.text(max_size=20),
)
def test_no_event_and_no_variable_is_too_strange(event: dict[str, Any], text: str) -> None:
    environment = ci_environment.read(
        dict.fromkeys([*ACTIONS, *GITLAB], text) | {"GITHUB_REPOSITORY": "a/b"}, event
    )
    assert not environment.sha or forge_access.is_commit_id(environment.sha)
    assert environment.number >= 0


@pytest.mark.parametrize(
    ("kind", "environ", "name"),
    [
        (ForgeKind.GITHUB, {"GITHUB_TOKEN": "x", "GH_TOKEN": "y"}, "GITHUB_TOKEN"),
        (ForgeKind.GITHUB, {"GITHUB_TOKEN": "x", "GITOPS_DS_TOKEN": "y"}, "GITOPS_DS_TOKEN"),
        (ForgeKind.GITLAB, {"CI_JOB_TOKEN": "x", "GITLAB_TOKEN": "y"}, "GITLAB_TOKEN"),
        (ForgeKind.GITLAB, {"CI_JOB_TOKEN": "x"}, "CI_JOB_TOKEN"),
        (ForgeKind.FORGEJO, {"GITEA_TOKEN": "x", "FORGEJO_TOKEN": "y"}, "FORGEJO_TOKEN"),
        (ForgeKind.GITEA, {"GITHUB_TOKEN": "x", "GITHUB_REPOSITORY": "a/b"}, "GITHUB_TOKEN"),
    ],
)
def test_each_forge_has_its_own_variable(
    kind: ForgeKind, environ: dict[str, str], name: str
) -> None:
    token = forge_access.token(kind, environ)
    assert token.name == name
    assert token.value not in repr(token).replace(name, "")
    assert token.of_job is (name == "CI_JOB_TOKEN")


@pytest.mark.parametrize(
    ("kind", "environ"),
    [
        (ForgeKind.GITEA, {"GITHUB_TOKEN": "of another forge"}),
        (ForgeKind.GITHUB, {"GITLAB_TOKEN": "x"}),
        (ForgeKind.GITLAB, {"GITHUB_TOKEN": "x", "GITHUB_REPOSITORY": "a/b"}),
        (ForgeKind.GITHUB, {}),
        (ForgeKind.GITHUB, {"GITHUB_TOKEN": " "}),
        (ForgeKind.GITHUB, {"GITHUB_TOKEN": "x\r\nHost: evil"}),
    ],
)
def test_a_token_is_never_taken_from_another_forge_nor_with_other_characters(
    kind: ForgeKind, environ: dict[str, str]
) -> None:
    with pytest.raises(errors.UsageError) as refused:
        forge_access.token(kind, environ)
    assert "evil" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "url", "found"),
    [
        (ForgeKind.GITHUB, "", "https://api.github.com"),
        (ForgeKind.GITHUB, "https://github.com/", "https://api.github.com"),
        (ForgeKind.GITHUB, "https://git.example", "https://git.example/api/v3"),
        (ForgeKind.GITHUB, "https://git.example/api/v3", "https://git.example/api/v3"),
        (ForgeKind.GITLAB, "", "https://gitlab.com/api/v4"),
        (ForgeKind.GITLAB, "https://example/gitlab", "https://example/gitlab/api/v4"),
        (ForgeKind.GITEA, "http://localhost:3000", "http://localhost:3000/api/v1"),
        (ForgeKind.FORGEJO, "http://[::1]:3000/", "http://[::1]:3000/api/v1"),
    ],
)
def test_the_address_of_the_api_follows_from_the_servers(
    kind: ForgeKind, url: str, found: str
) -> None:
    assert forge_access.address(kind, url, allow_http=False) == found


@pytest.mark.parametrize(
    ("url", "path", "expected"),
    [
        ("https://api.github.com", "graphql", "https://api.github.com/graphql"),
        ("https://git.example/api/v3", "graphql", "https://git.example/api/graphql"),
        ("https://git.example/api/v3", "user", "https://git.example/api/v3/user"),
    ],
)
def test_graphql_lies_beside_the_rest(url: str, path: str, expected: str) -> None:
    assert forge_access.request_url(url, path) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "git.example",
        "ftp://git.example",
        "https://me:secret@git.example",
        "https://git.example/?a=b",
    ],
)
def test_an_invalid_address_is_rejected(url: str) -> None:
    with pytest.raises(errors.UsageError, match="must be the server's address") as refused:
        forge_access.address(ForgeKind.GITEA, url, allow_http=True)
    assert "secret" not in str(refused.value)


def test_a_token_is_sent_over_http_only_where_configured() -> None:
    for url in (
        "http://git.example",
        "http://localhost.example",
        "http://127.0.0.1.example",
        "http://10.0.0.1",
    ):
        with pytest.raises(errors.UsageError, match="--allow-http"):
            forge_access.address(ForgeKind.GITEA, url, allow_http=False)
        assert forge_access.address(ForgeKind.GITEA, url, allow_http=True) == f"{url}/api/v1"


@pytest.mark.parametrize(
    ("status", "headers", "message", "wait"),
    [
        (500, {}, "", 4.0),
        (503, {"Retry-After": "30"}, "", 30.0),
        (503, {"Retry-After": "Fri, 15 Jan 2027 08:00:20 GMT"}, "", 20.0),
        (503, {"Retry-After": "Fri, 15 Jan 2027 07:00:20 GMT"}, "", 0.0),
        (503, {"Retry-After": "soon"}, "", 4.0),
        (408, {}, "", 4.0),
        (429, {"Retry-After": "0"}, "", 0.0),
        (429, {}, "", 4.0),
        (429, {"RateLimit-Remaining": "0", "RateLimit-Reset": "1800000010"}, "", 11.0),
        (403, {}, "You have exceeded a secondary rate limit", 240.0),
        (403, {"X-RateLimit-Remaining": "4999"}, "Resource not accessible by integration", None),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800000010"}, "forbidden", 11.0),
        (403, {}, "forbidden", None),
        (401, {}, "", None),
        (404, {}, "", None),
        (422, {}, "", None),
    ],
)
def test_the_failures_after_which_a_request_is_retried(
    status: int, headers: dict[str, str], message: str, wait: float | None
) -> None:
    assert retries.wait(status, headers, message, 2, 1_800_000_000.0) == wait


def test_the_same_comment_is_recognized_with_other_line_endings() -> None:
    expected = Sticky("<!-- m -->", "a  \nb\n", HEAD, (1,))
    assert sticky_comment.is_same(
        Comment(1, "me", expected.body.replace("\n", "\r\n").strip()), expected
    )
    assert not sticky_comment.is_same(Comment(1, "me", expected.body + "c"), expected)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "<!-- gitops-ds:posted commit=zz run=1 -->",
        f"<!-- gitops-ds:posted commit={HEAD} run={'9' * 9999} -->",
    ],
)
def test_a_second_line_of_another_form_is_ignored(line: str) -> None:
    assert not sticky_comment.is_newer(
        Comment(1, "me", f"<!-- m -->\n{line}\nx"), Sticky("<!-- m -->", "x", HEAD)
    )


@made.some_reports
def test_every_report_is_read_back(report: Any) -> None:
    about = ReportContext(version="1", key="the check / fleet", head="0123456789ab", base="main")
    page = comment_page.validated(markdown.as_page(report, about).encode())
    count = report.count()
    assert (page.key, page.head) == ("the-check-/-fleet", "0123456789ab")
    assert page.count == {severity: count[severity] for severity in Severity}
    assert page.text.startswith("**gitops-ds check: ")
    assert comment_page.validated(f"{markdown.marker(page.key)}\n{page.text}".encode()) == page


def test_the_footer_counts_and_not_the_content_of_a_file() -> None:
    text = (
        "**gitops-ds check: no findings** in 1 file, 1 object.\n\n```diff\n<sub>Checked "
        "`0123456`</sub>\n```\n"
    )
    assert comment_page.validated(f"{markdown.marker('x')}\n{text}".encode()).head == ""


GOOD = (
    f"{markdown.marker('check')}\n**gitops-ds check: 1 error, 2 warnings, 0 info** in 3 files, 2 "
    "objects.\n"
)


def test_how_loud_a_report_is() -> None:
    without = GOOD.replace("1 error, 2 warnings, 0 info", "no findings")
    warnings = GOOD.replace("1 error", "0 errors")
    for text, expected in ((GOOD, [1, 1, 1]), (warnings, [0, 1, 1]), (without, [0, 0, 0])):
        page = comment_page.validated(text.encode())
        levels = Severity.ERROR, Severity.WARNING, Severity.INFO
        assert [page.loud(level) for level in levels] == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        GOOD.partition("\n")[0].encode(),
        GOOD.replace("v=1", "v=2").encode(),
        GOOD.replace("check v", "check --> v").encode(),
        GOOD.replace("1 error", "-1 error").encode(),
        b" " + GOOD.encode(),
        GOOD.encode() + b"x" * 60_000,
    ],
)
def test_a_report_without_the_form_of_a_check_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"it (has more|is not|does not)"):
        comment_page.validated(data)


def test_nothing_in_a_report_triggers_a_bot_or_mentions_a_user() -> None:
    evil = (
        GOOD + "/merge\n  /approve @everyone\n- @org/team, me@example.com, "
        "image@sha256:ab\n\x1b[31mred\u202e\n"
    )
    text = comment_page.validated(evil.encode()).text
    assert not any(line.lstrip().startswith("/") for line in text.splitlines())
    assert "@everyone" not in text
    assert "@org" not in text
    assert "image@sha256:ab" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
