"""The comment: nothing from a repository means anything in it, it is cut by what matters least, and
every block is closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gitops_ds.checks.report import findings, markdown, printable
from gitops_ds.checks.report.findings import Report, ReportedChange
from gitops_ds.checks.report.markdown import Section
from gitops_ds.core.finding import Finding, Place, Severity
from tests.report import made
from tests.report.made import finding

OURS = re.compile(
    r"<!-- gitops-ds:report key=[\w./-]+ v=1 "
    r"-->|</?details>|</?sub>|<details><summary>|</summary>|</?summary>"
)
# What GitHub and GitLab would make something of in plain text, outside code.
NOTICED = re.compile(
    r"@[A-Za-z0-9]|(?<!\w)[#!$%&~^][A-Za-z0-9]|\w#\d|GH-\d|https?://|ftp://|www\.\w|mailto:\w|:[a-z0-9_+-]+:",
    re.IGNORECASE,
)


def tokens(page: str) -> Iterator[Token]:
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page):
        yield token
        yield from token.children or ()


@made.some_reports
def test_a_repository_can_put_no_mention_link_image_or_html_into_a_comment(report: Report) -> None:
    page = markdown.as_page(report, made.about(head="1501c2efe594"))
    for token in tokens(page):
        assert token.type not in {"link_open", "image", "softbreak_html", "hr", "blockquote_open"}
        if token.type == "html_inline":
            assert OURS.fullmatch(token.content)
        if token.type == "html_block":
            rest = OURS.sub("", token.content)
            assert "<" not in rest
        if token.type in {"text", "html_block"}:
            assert not NOTICED.search(re.sub(r"<!--.*?-->|&\w+;", "", token.content))
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    assert set(headings) <= {"Errors", "Warnings"}
    html = "".join(
        token.content for token in tokens(page) if token.type in {"html_block", "html_inline"}
    )
    assert html.count("<details>") == html.count("</details>")
    assert html.count("<!--") == 1
    assert page.splitlines()[0] == "<!-- gitops-ds:report key=check v=1 -->"


@made.some_reports
def test_no_line_of_a_comment_is_a_command_to_a_forge_or_a_runner(report: Report) -> None:
    page = markdown.as_page(report, made.about())
    assert list(made.commands(page)) == []
    fenced = "".join(token.content for token in tokens(page) if token.type == "fence").splitlines()
    assert not [
        line for line in page.splitlines() if re.match(r"\s*/\w", line) and line not in fenced
    ]


@given(made.words)
def test_code_is_code_and_nothing_else(text: str) -> None:
    shown = markdown.code(printable.line(text))
    kinds = [
        token
        for token in tokens(f"a {shown} b")
        if token.type not in {"inline", "paragraph_open", "paragraph_close", "text"}
    ]
    assert [token.type for token in kinds] == (
        ["code_inline"] if printable.line(text).split() else []
    )
    if kinds:
        assert kinds[0].content == " ".join(printable.line(text).split())


@given(made.words)
def test_a_fence_holds_all_of_its_text(text: str) -> None:
    (fence,) = [token for token in tokens(markdown.fence(text, "diff")) if token.level == 0]
    assert fence.type == "fence"
    assert fence.content.rstrip("\n") == printable.block(text).rstrip("\n")


@given(made.words)
def test_prose_reads_as_it_was(text: str) -> None:
    plain = printable.line(text)
    shown = "".join(
        token.content
        for token in tokens(f"x {markdown.prose(plain)}")
        if token.type in {"text", "text_special"}
    )
    assert shown.replace("\u200b", "") == f"x {' '.join(plain.split())}".rstrip(" ")


def test_a_clean_run_is_reported_and_keeps_its_marker() -> None:
    page = markdown.as_page(made.report(), made.about(key="main", head="1501c2efe594", base="main"))
    assert page == (
        "<!-- gitops-ds:report key=main v=1 -->\n**gitops-ds check: no findings** in 1 file, 1 "
        "object.\n"
        "\n<sub>Checked `1501c2efe594`; against `main`; gitops-ds 1.2.3</sub>\n"
    )


def test_a_finding_is_linked_to_its_line_and_listed_once_for_clusters_that_share_it() -> None:
    report = made.report(
        finding(cluster="east", message="two budgets"),
        finding(cluster="west", message="two budgets"),
        root="fl eet",
    )
    page = markdown.as_page(report, made.about(permalink="https://github.com/o/r/blob/abc"))
    assert (
        "- [`fl "
        "eet/agents/agent/daemonset.yaml:3`]"
        "(https://github.com/o/r/blob/abc/fl%20eet/agents/agent/daemonset.yaml#L3) "
        "**DS202** `DaemonSet logging/agent`: two budgets (on `east`, `west`)\n"
    ) in page
    assert "| east | 0 | 1 | 0 | 0 |\n| west | 0 | 1 | 0 | 0 |\n" in page


def test_each_change_is_a_row_of_the_table_and_a_diff_that_equal_clusters_share() -> None:
    report = findings.with_changes(
        made.report(),
        [
            ReportedChange(
                ("east", "west"),
                ("~ DaemonSet logging/agent\n  ::set-output name=a::b",),
                restarted=7,
            )
        ],
        {},
    )
    page = markdown.as_page(report, made.about())
    assert "<summary>Changes, the same in 2 clusters: east, west</summary>" in page
    assert " The change changes 2 objects and restarts pods on 14 nodes.\n" in page
    assert "  : :set-output" in page
    assert (
        markdown.as_page(findings.with_changes(made.report(), [], {}), made.about()).count(
            "The change changes no object."
        )
        == 1
    )


@pytest.mark.parametrize("most", [3_000, 10_000, 60_000])
def test_a_comment_keeps_its_size_and_cuts_what_matters_least(most: int) -> None:
    loud = [finding(line=line, message=f"loud {line}" + "é" * 50) for line in range(1, 20)]
    quiet = [
        finding("DS208", Severity.WARNING, line, message=f"quiet {line}" + "é" * 900)
        for line in range(1, 400)
    ]
    fleet = Section("Fleet", tuple(f"- node {at}\n" for at in range(5)))
    report = findings.with_changes(
        made.report(*loud, *quiet), [ReportedChange((), ("- old\n+ new",))], {}
    )
    page = markdown.as_page(report, made.about(full="https://ci/1"), fleet=[fleet], most=most)
    assert len(page.encode()) <= most
    assert "full report: https://ci/1" in page
    shown = [page.count("loud"), page.count("- node"), page.count("quiet"), page.count("```diff")]
    full = [19, 5, 399, 1]
    # What is complete, then one that is cut, then nothing.
    cut = next(at for at, (some, every) in enumerate(zip(shown, full, strict=True)) if some < every)
    assert shown[cut + 1 :] == [0] * (3 - cut)
    left = int(re.findall(r"(\d+) more entries, of 418 findings", page)[0])
    # The table has a row for the one cluster, as there is a change.
    assert left == sum(full) - sum(shown)
    assert page.count("<details>") == page.count("</details>")
    assert page.count("```") % 2 == 0


def test_a_finding_without_a_place_has_none() -> None:
    assert "- **DS202** `DaemonSet logging/agent`: words\n" in markdown.as_page(
        made.report(finding(place=None, message="words")), made.about(permalink="https://x")
    )


def test_info_is_folded() -> None:
    page = markdown.as_page(
        made.report(finding(severity=Severity.INFO, place=Place("a.yaml"))), made.about()
    )
    assert "<details><summary>Info</summary>\n\n- `a.yaml` **DS202**" in page


@pytest.mark.parametrize("key", ["--> <b>", "a key", "Ünï", "", "x" * 500])
def test_a_marker_is_one_comment(key: str) -> None:
    assert re.fullmatch(r"<!-- gitops-ds:report key=[\w./-]{1,100} v=1 -->", markdown.marker(key))


def test_an_object_that_the_message_names_is_named_once() -> None:
    gone = Finding("DS702", Severity.WARNING, f"{made.AGENT}: it is taken away", object=made.AGENT)
    assert markdown.as_page(made.report(gone), made.about()).count(made.AGENT.name) == 1
