"""A repository as it is read and written: refusals, caps, the order of commits, reverts, pushes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TypeVar

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.repository_limits import DEFAULT, RepositoryLimits
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source.git import address, object_reader, revision, tree
from gitops_ds.source.git.commit_writer import CommitReason, Signature
from gitops_ds.source.git.credentials.credential_values import ANONYMOUS
from gitops_ds.source.git.object_reader import BranchMovement
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch, Head, ShortName
from gitops_ds.source.git.tree import EntryKind, TreeEntry
from tests.gitservers import GIT_ENVIRONMENT, Upstream

T = TypeVar("T")
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOT = Signature("Bot", "bot@example.com", AT)
WHY = CommitReason("nodes a and b crash", BOT)
MAIN = Branch("main")
FIVE = "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\n"


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "upstream")


def use(
    upstream: Upstream,
    work: Callable[[Repository], Awaitable[T]],
    limits: RepositoryLimits = DEFAULT,
) -> T:
    async def run() -> T:
        where = address.parse(str(upstream.path), allow_local=True)
        async with Repository(
            where, upstream.path.parent / "cache", ANONYMOUS, limits
        ) as repository:
            return await work(repository)

    return asyncio.run(run())


async def fetched(repository: Repository, spec: revision.RevisionSpec = MAIN) -> CommitId:
    commit = await repository.tip(spec)
    await repository.fetch(commit)
    return commit


def snapshot(upstream: Upstream, path: str = "", limits: RepositoryLimits = DEFAULT) -> SourceTree:
    async def work(repository: Repository) -> SourceTree:
        return await repository.snapshot(await fetched(repository), path)

    return use(upstream, work, limits)


def finding_places(taken: SourceTree) -> list[tuple[str, str, bool]]:
    return [(f.rule, f.place.file if f.place else "", f.refused) for f in taken.findings]


def test_a_snapshot_holds_the_bytes_of_the_commit_under_the_path(upstream: Upstream) -> None:
    upstream.commit(
        {"top.yaml": "x", "deploy/a.yaml": b"a: 1\r\nb: \xff\r\n", "deploy/in/é b.json": "{}"}
    )
    # Not by `git add`, which would obey it already.
    attributes = upstream.git("hash-object", "-w", "--stdin", input=b"* text eol=lf ident filter=x")
    upstream.git("update-index", "--add", "--cacheinfo", f"100644,{attributes},.gitattributes")
    upstream.git("commit", "--quiet", "-m", "change")
    taken = snapshot(upstream, "deploy/")
    assert taken.files == {
        PurePosixPath("a.yaml"): b"a: 1\r\nb: \xff\r\n",
        PurePosixPath("in/é b.json"): b"{}",
    }
    assert taken.commit is not None
    assert (taken.commit.subject, taken.commit.author) == ("change", "Ada <ada@example.com>")
    assert taken.commit.committed == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.sampled
@pytest.mark.parametrize("path", ["/etc", "..", "a/../..", "a\nb"])
def test_a_path_that_leads_out_is_a_usage_error(upstream: Upstream, path: str) -> None:
    upstream.commit({"a.yaml": "x"})
    with pytest.raises(errors.UsageError, match="inside the repository"):
        snapshot(upstream, path)


@pytest.mark.sampled
@pytest.mark.parametrize("path", ["nothing", "a.yaml", "--help", "link"])
def test_a_path_without_a_directory_in_the_commit_is_named(upstream: Upstream, path: str) -> None:
    (upstream.work / "link").symlink_to("/etc")
    upstream.commit({"a.yaml": "x"})
    with pytest.raises(errors.RevisionUnknown, match=f"no directory {path}"):
        snapshot(upstream, path)


def test_links_are_rejected_in_place_of_files_that_are_read(upstream: Upstream) -> None:
    (upstream.work / "secret.yaml").symlink_to("/etc/passwd")
    (upstream.work / "latest").symlink_to("v1")
    (upstream.work / "readme").symlink_to("v1/notes")
    upstream.commit({"v1/a.yaml": "a", "v1/notes": "n", ".github/x": "y"})
    (upstream.work / ".github/w.yaml").symlink_to("../v1/a.yaml")
    upstream.commit({})
    taken = snapshot(upstream)
    assert finding_places(taken) == [
        ("SRC001", ".github/w.yaml", False),
        ("SRC001", "latest", True),
        ("SRC001", "readme", False),
        ("SRC001", "secret.yaml", True),
    ]
    assert sorted(map(str, taken.files)) == ["v1/a.yaml"]


def test_a_submodule_is_refused(upstream: Upstream) -> None:
    upstream.tree(("160000", "commit", b"1" * 40, b"vendor"))
    assert finding_places(snapshot(upstream)) == [("SRC002", "vendor", True)]


def test_names_that_are_not_plain_utf8_paths_are_refused(upstream: Upstream) -> None:
    names = (b"\xff.yaml", b"\xfe.txt", b"a\\b.yaml", b"a\nb.yaml", b"ok.yaml")
    upstream.tree(*(("100644", "blob", b"x", name) for name in sorted(names)))
    taken = snapshot(upstream)
    assert list(taken.files) == [PurePosixPath("ok.yaml")]
    assert finding_places(taken) == [
        ("SRC004", "a\\x0ab.yaml", True),
        ("SRC004", "a\\b.yaml", True),
        ("SRC004", "\\xfe.txt", False),
        ("SRC004", "\\xff.yaml", True),
    ]


def test_a_tree_that_leads_out_is_not_even_fetched(upstream: Upstream) -> None:
    inner = upstream.tree(("100644", "blob", b"x", b"passwd.yaml"))
    upstream.tree(("40000", "tree", upstream.git("rev-parse", f"{inner}^{{tree}}").encode(), b".."))
    with pytest.raises(errors.SourceError, match="fsck rejects"):
        snapshot(upstream)


@pytest.mark.parametrize(
    "name",
    [
        b"../a.yaml",
        b"/etc/a.yaml",
        b"a/../b.yaml",
        b".git/config.yaml",
        b"a//b.yaml",
        b".GIT/x.yaml",
        b"./a.yaml",
    ],
)
def test_a_name_that_leaves_the_tree_is_rejected(name: bytes) -> None:
    sifted = tree.sift([TreeEntry(name, EntryKind.FILE, 1)], DEFAULT, lambda _: {})
    assert (sifted.files, [f.rule for f in sifted.findings]) == ((), ["SRC004"])


@pytest.mark.slow
def test_a_file_of_200_mb_gives_a_finding_and_not_its_bytes(upstream: Upstream) -> None:
    upstream.work.joinpath("big.yaml").touch()
    os.truncate(upstream.work / "big.yaml", 200_000_000)
    os.link(upstream.work / "big.yaml", upstream.work / "big.bin")
    upstream.commit({"small.yaml": "x"})
    taken = snapshot(upstream)
    assert list(taken.files) == [PurePosixPath("small.yaml")]
    assert finding_places(taken) == [("SRC003", "big.bin", False), ("SRC003", "big.yaml", True)]
    assert "200,000,000 bytes" in taken.findings[0].message


@pytest.mark.slow
def test_more_than_ten_thousand_files_are_not_read_at_all(upstream: Upstream) -> None:
    blob = upstream.git("hash-object", "-w", "--stdin", input=b"a: 1\n")
    lines = "".join(f"100644 {blob}\td/{n}.yaml\n" for n in range(10_001))
    upstream.git("update-index", "--index-info", input=lines.encode())
    upstream.git("commit", "--quiet", "-m", "many")
    taken = snapshot(upstream)
    assert (taken.files, finding_places(taken)) == ({}, [("SRC005", "", True)])
    assert "10,001 files" in taken.findings[0].message
    assert len(snapshot(upstream, limits=RepositoryLimits(files=10_001)).files) == 10_001


def test_more_bytes_than_allowed_in_all_are_not_read(upstream: Upstream) -> None:
    upstream.commit({f"{n}.yaml": "#" * 50_000 for n in range(5)})
    assert finding_places(snapshot(upstream, limits=RepositoryLimits(snapshot_bytes=200_000))) == [
        ("SRC005", "", True)
    ]


def test_an_empty_repository_and_an_unknown_branch_are_reported(upstream: Upstream) -> None:
    for reference in (Head(), MAIN, ShortName("main")):
        with pytest.raises(errors.RevisionUnknown, match=r"has no commit yet|no branch main"):
            use(upstream, lambda r, w=reference: r.tip(w))  # type: ignore[misc]
    upstream.commit({"a.yaml": "x"})
    with pytest.raises(errors.RevisionUnknown, match="did you mean main"):
        use(upstream, lambda r: r.tip(Branch("mian")))


def test_a_branch_that_was_deleted_is_unknown_and_its_commit_stays_readable(
    upstream: Upstream,
) -> None:
    upstream.commit({"a.yaml": "x"})
    upstream.git("branch", "old")

    async def work(repository: Repository) -> None:
        commit = await fetched(repository, Branch("old"))
        upstream.git("branch", "-D", "old")
        with pytest.raises(errors.RevisionUnknown, match="no branch old"):
            await repository.tip(Branch("old"))
        assert (await repository.snapshot(commit)).files

    use(upstream, work)


def test_revisions_of_every_kind_lead_to_their_commits(upstream: Upstream) -> None:
    first = upstream.commit({"a.yaml": "1"})
    upstream.git("tag", "-a", "v1.2.0", "-m", "annotated")
    second = upstream.commit({"a.yaml": "2"})
    upstream.git("tag", "v1.10.0")
    upstream.git("update-ref", "refs/pull/7/head", first)
    upstream.git("branch", "both", first)
    upstream.git("tag", "both", second)
    expected = {
        None: second,
        "main": second,
        "v1.2.0": first,
        "refs/tags/v1.2.0": first,
        "refs/pull/7/head": first,
        "both": first,
        first: first,
        first[:9]: first,
        "main~1": first,
        "HEAD^": first,
        "@~1": first,
        "v1.10.0^": first,
        "v1.2.0^{}": first,
        f"{second[:9]}~": first,
        "both~0": first,
    }

    async def work(repository: Repository) -> None:
        for text, commit in expected.items():
            tip = await fetched(repository, revision.parse(text))
            assert tip == commit, text
        assert await repository.tip(revision.from_settings(semver="^1.2")) == second

    use(upstream, work)


@pytest.mark.parametrize(
    ("of", "options"), [("^{tree}", ()), (":a.yaml", ()), ("^{tree}", ("-a", "-m", "annotated"))]
)
def test_a_tag_of_an_object_that_is_not_a_commit_is_named(
    upstream: Upstream, of: str, options: tuple[str, ...]
) -> None:
    upstream.commit({"a.yaml": "1"})
    upstream.git("tag", *options, "v1.2.0", f"HEAD{of}")
    kind = "tree" if of == "^{tree}" else "blob"

    async def work(repository: Repository) -> None:
        with pytest.raises(errors.RevisionUnknown) as raised:
            await fetched(repository, revision.from_settings(tag="v1.2.0"))
        assert f"is a {kind}, not a commit: let the tag or ref point to a commit" in str(
            raised.value
        )

    use(upstream, work)


def test_a_commit_that_no_ref_names_is_unknown(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "1"})
    with pytest.raises(errors.RevisionUnknown, match="no commit 0000"):
        use(upstream, lambda r: r.fetch(CommitId("0" * 40)))


def test_the_way_of_a_branch_is_forward_rewritten_or_rewound(upstream: Upstream) -> None:
    first = CommitId(upstream.commit({"a.yaml": "1"}))
    second = CommitId(upstream.commit({"a.yaml": "2"}))

    async def work(repository: Repository) -> None:
        await fetched(repository)
        assert await repository.movement(first, second) is BranchMovement.FORWARD
        assert await repository.movement(second, second) is BranchMovement.FORWARD
        assert await repository.movement(second, first) is BranchMovement.REWOUND
        upstream.git("reset", "--quiet", "--hard", first)
        other = CommitId(upstream.commit({"a.yaml": "3"}))
        assert await fetched(repository) == other
        assert await repository.movement(second, other) is BranchMovement.REWRITTEN
        assert await repository.movement(CommitId("0" * 40), other) is BranchMovement.REWRITTEN
        assert [c.id for c in await repository.log(first, other)] == [other]
        assert [c.id for c in await repository.log(None, other, 1)] == [other]
        assert await repository.is_ancestor(first, other)
        assert not await repository.is_ancestor(second, other)

    use(upstream, work)
    assert "gitops-ds apply --revision" in str(object_reader.rewound("https://h/a", second, first))


def test_a_revert_of_an_earlier_commit_keeps_later_changes(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": FIVE})
    bad = CommitId(upstream.commit({"a.yaml": FIVE.replace("a: 1", "a: 9  # bad")}, "a new image"))
    upstream.commit(
        {"a.yaml": FIVE.replace("a: 1", "a: 9  # bad").replace("e: 5", "e: 6"), "b.yaml": "b"}
    )

    async def work(repository: Repository) -> str:
        tip = await fetched(repository)
        commit = await repository.revert(tip, {bad: None}, WHY)
        assert commit == await repository.revert(tip, {bad: None}, WHY)
        files = (await repository.snapshot(commit)).files
        assert files[PurePosixPath("a.yaml")].decode() == FIVE.replace("e: 5", "e: 6")
        assert files[PurePosixPath("b.yaml")] == b"b"
        assert (await repository.info(commit)).parents == (tip,)
        return await repository.show(commit)

    shown = use(upstream, work)
    assert "Author: Bot <bot@example.com>\nDate:   Sun Mar 1 12:00:00 2026 +0000" in shown
    message = [line.strip() for line in shown.split("diff --git")[0].splitlines()[4:]]
    assert message == [
        'Revert "a new image"', "", "nodes a and b crash", "", f"This reverts commit {bad}.", "",
    ]  # fmt: skip
    assert "-a: 9  # bad\n+a: 1" in shown


def test_two_commits_are_reverted_by_two_commits(upstream: Upstream) -> None:
    base = CommitId(upstream.commit({"a.yaml": "1\n"}))
    bad = [CommitId(upstream.commit({"a.yaml": text})) for text in ("2\n", "3\n")]

    async def work(repository: Repository) -> None:
        tip = await fetched(repository)
        commit = await repository.revert(tip, dict.fromkeys(bad[::-1]), WHY)
        assert (await repository.snapshot(commit)).files == (await repository.snapshot(base)).files
        assert len(await repository.log(tip, commit)) == 2

    use(upstream, work)


def test_a_part_of_a_commit_is_reverted_and_its_other_changes_stay(upstream: Upstream) -> None:
    upstream.commit({"d/a.yaml": FIVE, "b.yaml": "1\n"})
    changed = {"d/a.yaml": FIVE.replace("a: 1", "a: 9"), "d/new.yaml": "1\n", "b.yaml": "2\n"}
    bad = CommitId(upstream.commit(changed, "much"))
    upstream.commit({"d/a.yaml": FIVE.replace("a: 1", "a: 9").replace("e: 5", "e: 6")})

    async def work(repository: Repository) -> None:
        parts = {bad: ("d/a.yaml", "d/new.yaml")}
        commit = await repository.revert(await fetched(repository), parts, WHY)
        files = (await repository.snapshot(commit)).files
        assert {str(name): text.decode() for name, text in files.items()} == {
            "d/a.yaml": FIVE.replace("e: 5", "e: 6"),
            "b.yaml": "2\n",
        }
        message = await repository.show(commit)
        assert 'Revert a part of "much"' in message
        assert "- d/new.yaml" in message

    use(upstream, work)


def test_a_revert_that_conflicts_names_the_files_and_writes_nothing(upstream: Upstream) -> None:
    upstream.commit({"d/a.yaml": "1\n", "b.yaml": "1\n"})
    bad = CommitId(upstream.commit({"d/a.yaml": "2\n", "b.yaml": "2\n"}, "bad"))
    upstream.commit({"d/a.yaml": "3\n"})

    async def work(repository: Repository) -> None:
        with pytest.raises(errors.Refused, match=r"conflicts with later changes in d/a\.yaml;"):
            await repository.revert(await fetched(repository), {bad: None}, WHY)

    use(upstream, work)


def test_a_reverted_commit_and_one_of_another_branch_are_not_reverted(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "1\n"})
    bad = CommitId(upstream.commit({"a.yaml": "2\n"}))
    upstream.commit({"a.yaml": "1\n"})
    upstream.git("checkout", "--quiet", "-b", "side", bad)
    strange = CommitId(upstream.commit({"b.yaml": "1\n"}))

    async def work(repository: Repository) -> None:
        tip = await fetched(repository)
        with pytest.raises(errors.Refused, match="already reverted"):
            await repository.revert(tip, {bad: None}, WHY)
        await fetched(repository, Branch("side"))
        with pytest.raises(errors.Refused, match="not in the history"):
            await repository.revert(tip, {strange: None}, WHY)

    use(upstream, work)


def test_the_first_commit_and_a_merge_can_be_reverted(upstream: Upstream) -> None:
    first = CommitId(upstream.commit({"a.yaml": "1\n"}))
    upstream.git("checkout", "--quiet", "-b", "side")
    upstream.commit({"b.yaml": "1\n"})
    upstream.git("checkout", "--quiet", "main")
    upstream.commit({"c.yaml": "1\n"})
    upstream.git("merge", "--quiet", "--no-ff", "-m", "merge", "side")

    async def work(repository: Repository) -> None:
        tip = await fetched(repository)
        for commit, left in ((tip, ["a.yaml", "c.yaml"]), (first, ["b.yaml", "c.yaml"])):
            files = (
                await repository.snapshot(await repository.revert(tip, {commit: None}, WHY))
            ).files
            assert sorted(map(str, files)) == left

    use(upstream, work)


def test_files_are_restored_and_added_ones_are_deleted(upstream: Upstream) -> None:
    old = CommitId(upstream.commit({"d/a.yaml": b"1\r\n", "d/run.sh": "x", "keep": "1"}))
    upstream.git("update-index", "--chmod=+x", "d/run.sh")
    upstream.git("commit", "--quiet", "-m", "mode")
    old = CommitId(upstream.git("rev-parse", "HEAD"))
    (upstream.work / "d/run.sh").chmod(0o644)
    upstream.commit({"d/a.yaml": "2", "d/run.sh": None, "d/new/x.yaml": "n", "keep.yaml": "2"})

    async def work(repository: Repository) -> None:
        tip = await fetched(repository)
        commit = await repository.restore(tip, old, ["d"], WHY)
        files = (await repository.snapshot(commit)).files
        assert {str(k): v for k, v in files.items()} == {"d/a.yaml": b"1\r\n", "keep.yaml": b"2"}
        assert f'This restores, from commit {old} ("mode")' in await repository.show(commit)
        assert "new file mode 100755" in await repository.show(commit)
        with pytest.raises(errors.Refused, match="nothing to commit"):
            await repository.restore(commit, old, ["d"], WHY)
        for path in ("../x", "/etc/passwd", ".git/hooks/x", "-x/../y", "a\\b"):
            with pytest.raises(errors.UsageError, match="plain path"):
                await repository.restore(tip, old, [path], WHY)

    use(upstream, work)


def test_files_are_written_byte_for_byte_and_keep_their_mode(upstream: Upstream) -> None:
    upstream.commit(
        {
            "a.yaml": b"a: 1\r\n",
            "run.sh": "x",
            ".gitattributes": "* text=auto eol=lf\n*.yaml filter=evil\n",
        }
    )
    upstream.git("update-index", "--chmod=+x", "run.sh")
    upstream.git("commit", "--quiet", "-m", "mode")

    async def work(repository: Repository) -> None:
        tip = await fetched(repository)
        changes = {
            "a.yaml": b"a: 2 # \xe9\r\nb: 1\n",
            "run.sh": b"y",
            "new/*.yaml": b"n",
            "-x": b"z",
            ".gitattributes": None,
        }
        commit = await repository.commit_files(tip, changes, "write", BOT)
        files = (await repository.snapshot(commit)).files
        assert {str(k): v for k, v in files.items()} == {
            k: changes[k] for k in ("a.yaml", "new/*.yaml")
        }
        assert "old mode" not in await repository.show(commit)
        await repository.push(commit, "main", tip)

    use(upstream, work)
    assert upstream.git("ls-tree", "main", "run.sh").startswith("100755")
    assert upstream.git("ls-tree", "--name-only", "main").split() == [
        "-x",
        "a.yaml",
        "new",
        "run.sh",
    ]
    assert upstream.git("show", "main:run.sh") == "y"


def test_someone_who_pushes_first_is_kept_and_the_commit_is_built_again(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "1"})
    tips: list[CommitId] = []

    async def work(repository: Repository) -> CommitId:
        async def build(tip: CommitId) -> CommitId:
            tips.append(tip)
            if len(tips) < 3:
                upstream.commit({f"theirs-{len(tips)}": "x"})
            return await repository.commit_files(tip, {"mine": b"y"}, "mine", BOT)

        return await repository.push_with_retry(build, "main")

    pushed = use(upstream, work)
    assert len(tips) == 3
    assert upstream.git("rev-parse", "main") == pushed
    assert upstream.git("ls-tree", "--name-only", "main").split() == [
        "a.yaml",
        "mine",
        "theirs-1",
        "theirs-2",
    ]


def test_a_race_that_is_always_lost_ends(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "1"})

    async def work(repository: Repository) -> None:
        async def build(tip: CommitId) -> CommitId:
            upstream.commit({}, "theirs")
            return await repository.commit_files(tip, {"mine": b"y"}, "mine", BOT)

        await repository.push_with_retry(build, "main", attempts=2)

    with pytest.raises(errors.PushRejected, match="has a newer commit"):
        use(upstream, work)


def test_a_push_never_rewinds_nor_overwrites_an_existing_branch(upstream: Upstream) -> None:
    first = CommitId(upstream.commit({"a.yaml": "1"}))
    second = CommitId(upstream.commit({"a.yaml": "2"}))

    async def work(repository: Repository) -> None:
        await fetched(repository)
        with pytest.raises(errors.Refused, match="is not a descendant of"):
            await repository.push(first, "main", second)
        mine = await repository.commit_files(second, {"b": b"1"}, "mine", BOT)
        with pytest.raises(errors.PushRejected):
            await repository.push(mine, "main", None)
        await repository.push(second, "new/branch", None)
        assert await repository.tip(Branch("new/branch")) == second
        for name in ("--force", "a b", "../x", "a..b"):
            with pytest.raises(errors.UsageError):
                await repository.push(second, name, None)

    use(upstream, work)


def test_a_server_whose_rule_refuses_the_push_is_quoted(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "1"})
    hook = upstream.path / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'main is protected' >&2\nexit 1\n")
    hook.chmod(0o755)

    async def work(repository: Repository) -> None:
        tip = await fetched(repository)
        await repository.push(
            await repository.commit_files(tip, {"b": b"1"}, "m", BOT), "main", tip
        )

    with pytest.raises(errors.SourceDenied, match="main is protected"):
        use(upstream, work)


def test_no_hook_filter_or_configuration_of_either_side_runs(upstream: Upstream) -> None:
    ran = upstream.path.parent / "ran"
    upstream.commit({"a.yaml": "1", ".gitattributes": "* filter=evil diff=evil merge=evil"})

    async def work(repository: Repository) -> None:
        tip = await fetched(repository)
        (cache,) = (upstream.path.parent / "cache").glob("*.git")
        hooks = cache / "hooks"
        hooks.mkdir(exist_ok=True)
        for name in ("reference-transaction", "pre-push", "post-index-change", "fsmonitor"):
            (hooks / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
            (hooks / name).chmod(0o755)
        commit = await repository.commit_files(tip, {"a.yaml": b"2"}, "m", BOT)
        await repository.show(commit)
        await repository.push(commit, "main", tip)
        upstream.commit({"b.yaml": "1"})
        await fetched(repository)

    use(upstream, work)
    assert not ran.exists()


def test_git_variables_of_the_callers_shell_or_hook_are_ignored(
    upstream: Upstream, tmp_path: Path
) -> None:
    commit = upstream.commit({"a.yaml": "1"})
    other = Upstream(tmp_path / "other")
    other.commit({"b.yaml": "2"})
    program = """
import asyncio, sys
from pathlib import Path
from gitops_ds.source.git import address, worktree
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch

async def main():
    where = address.parse(sys.argv[1], allow_local=True)
    async with Repository(where, Path(sys.argv[2])) as repository:
        commit = await repository.tip(Branch("main"))
        await repository.fetch(commit)
        info = await repository.info(commit)
        print(commit, *(await repository.snapshot(commit)).files, *info.parents)
    print(*worktree.snapshot(Path(sys.argv[3])).files)

asyncio.run(main())
"""
    desk = tmp_path / "desk"
    desk.mkdir()
    (desk / "c.yaml").write_text("3")
    subprocess.run(("git", "init", "--quiet", str(desk)), env=GIT_ENVIRONMENT, check=True)
    hostile = {
        "GIT_DIR": str(other.path),
        "GIT_COMMON_DIR": str(other.path),
        "GIT_WORK_TREE": str(other.work),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_OBJECT_DIRECTORY": str(other.path / "objects"),
        "GIT_CONFIG_PARAMETERS": "'core.fsmonitor'='touch x'",
        "GIT_TRACE": str(tmp_path / "trace"),
        "GIT_TRACE_CURL": str(tmp_path / "trace"),
        "GIT_NAMESPACE": "elsewhere",
    }
    words = (sys.executable, "-c", program, str(upstream.path), str(tmp_path / "cache"), str(desk))
    run = subprocess.run(
        words, env={**os.environ, **hostile}, capture_output=True, text=True, check=False
    )
    assert run.stdout.split() == [commit, "a.yaml", "c.yaml"], run.stderr
    # GitPython itself reads git's version when it is imported; nothing else may be traced.
    assert "fetch" not in (tmp_path / "trace").read_text()
    assert not list(other.path.rglob("*.pack"))


def test_a_local_repository_is_not_reached_through_the_address_of_another(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"a.yaml": "1"})
    where = address.Address(address.Scheme.HTTPS, f"file://{upstream.path}", "x", "https://h")

    async def run() -> None:
        async with Repository(where, tmp_path / "cache") as repository:
            await repository.tip(MAIN)

    with pytest.raises(errors.SourceDenied, match="transport file is not allowed"):
        asyncio.run(run())


def test_the_cache_is_for_its_owner_alone_and_holds_no_url(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "1"})
    use(upstream, fetched)
    cache = upstream.path.parent / "cache"
    assert cache.stat().st_mode & 0o77 == 0
    (bare,) = cache.iterdir()
    assert bare.stat().st_mode & 0o77 == 0
    assert str(upstream.path) not in (bare / "config").read_text()


def test_the_error_of_a_damaged_cache_names_the_directory_to_delete(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": "1"})
    use(upstream, fetched)
    for pack in (upstream.path.parent / "cache").rglob("*.pack"):
        pack.chmod(0o600)
        pack.write_bytes(b"PACK" + b"\0" * 100)
    with pytest.raises(errors.SourceError, match=r"delete .*\.git"):
        snapshot(upstream)


@pytest.mark.slow
def test_processes_that_open_one_cache_at_once_wait_for_each_other(upstream: Upstream) -> None:
    commit = upstream.commit({"a.yaml": "a: 1\n"})
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert set(pool.map(lambda _: use(upstream, fetched), range(24))) == {commit}


@pytest.mark.parametrize("left", ["config.lock", "packed-refs.lock", "refs/gitops-ds/seen/{}.lock"])
def test_the_lock_of_a_killed_process_does_not_block(upstream: Upstream, left: str) -> None:
    upstream.commit({"a.yaml": "a: 0\n"})
    use(upstream, fetched)
    commit = upstream.commit({"a.yaml": "a: 1\n"})
    [cache] = (upstream.path.parent / "cache").glob("*.git")
    path = cache / left.format(commit[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert use(upstream, fetched) == commit


def test_many_fetches_leave_few_packs(upstream: Upstream) -> None:
    async def work(repository: Repository) -> None:
        for n in range(20):
            upstream.commit({"a.yaml": str(n)})
            await fetched(repository)

    use(upstream, work)
    assert len(list((upstream.path.parent / "cache").rglob("*.pack"))) <= 8


@pytest.mark.parametrize(
    ("name", "email"), [("", "a@b"), ("A <x>", "a@b"), ("A\nB", "a@b"), ("A", "a b"), ("A", "")]
)
def test_an_author_that_would_break_a_commit_is_refused(name: str, email: str) -> None:
    with pytest.raises(errors.UsageError, match="not a valid author"):
        Signature(name, email, AT)


def test_a_commit_is_signed_off_only_on_request(upstream: Upstream) -> None:
    upstream.commit({"a.yaml": FIVE})

    async def work(repository: Repository) -> list[bool]:
        tip = await fetched(repository)
        shown = []
        for by in (BOT, replace(BOT, signoff=True)):
            commit = await repository.commit_files(tip, {"new.yaml": b"x"}, "One file", by)
            shown.append("Signed-off-by: Bot <bot@example.com>" in await repository.show(commit))
        return shown

    assert use(upstream, work) == [False, True]
