"""Whether a commit only restores an earlier content of files.

The content of the files decides, regardless of the commit message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gitops_ds.git import object_reader, tree
from gitops_ds.git.bare_repository import BareRepository
from gitops_ds.model.objects import CommitId

MOST_CHANGES = 2000  # earlier commits of the branch that changed one of the files
_MOST_CONTENTS = 100_000  # files of commits that are compared


def find(
    bare: BareRepository, since: CommitId, tip: CommitId, among: Collection[CommitId], path: str
) -> CommitId | None:
    """The newest commit of `among` that has the tip's content of every file which differs between
    `since` and the tip; `since` itself if no file differs. `path` is the followed folder.

    None without one, and if the branch had the content of `since` before that of the tip: then the
    tip repeats a reverted change. Raises RevisionUnknown for a commit that was not fetched.
    """
    for commit in (since, tip):
        object_reader.info(bare, commit)
    files = _differing(bare, since, tip, path)
    if not files:
        return since
    newest_first = _newest_first(bare, among)
    if not newest_first or any("\n" in name for name in files):
        return None
    history = _changing(bare, since, files)
    commits = tuple(dict.fromkeys((tip, since, *newest_first, *history)))
    if len(history) >= MOST_CHANGES or len(commits) * len(files) > _MOST_CONTENTS:
        return None
    contents = _contents(bare, commits, files)
    now, before = contents[tip], contents[since]
    first = next((one for one in history if contents[one] in (now, before)), None)
    if first is None or contents[first] != now:
        return None
    return next((one for one in newest_first if contents[one] == now), None)


def _differing(bare: BareRepository, since: CommitId, tip: CommitId, path: str) -> Sequence[str]:
    """The files below the path that differ, in order."""
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", since, tip)
    folder = tree.directory(path)
    names = bare.run(*words).stdout.decode("utf-8", "surrogateescape").split("\0")
    return [name for name in names if name and (not folder or name.startswith(f"{folder}/"))]


def _newest_first(bare: BareRepository, commits: Iterable[CommitId]) -> Sequence[CommitId]:
    """The commits in the local copy, by date."""
    here = [one for one in sorted(commits) if object_reader.has(bare, one)]
    if not here:
        return ()
    ids = bare.run("rev-list", "--no-walk=sorted", "--end-of-options", *here).text
    return tuple(map(CommitId, ids.split()))


def _changing(bare: BareRepository, until: CommitId, files: Sequence[str]) -> Sequence[CommitId]:
    """The commits of the branch itself that changed one of the files, oldest first."""
    words = ("rev-list", "--first-parent", "--reverse", f"--max-count={MOST_CHANGES}", until, "--")
    ids = bare.run(*words, *files).text  # pathspecs are literal (`hardening`)
    return tuple(map(CommitId, ids.split()))


def _contents(
    bare: BareRepository, commits: Sequence[CommitId], files: Sequence[str]
) -> Mapping[CommitId, tuple[str, ...]]:
    """The blobs of the files in each commit, in one run of git; `missing` without the file."""
    names = "".join(f"{commit}:{name}\n" for commit in commits for name in files)
    request = names.encode("utf-8", "surrogateescape")
    output = bare.run("cat-file", "--batch-check=%(objectname)", input=request)
    rows = [row.rpartition(" ")[2] for row in output.text.split("\n")]
    size = len(files)
    return {one: tuple(rows[n * size : (n + 1) * size]) for n, one in enumerate(commits)}
