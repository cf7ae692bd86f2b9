"""Files as additional arguments, as from pre-commit: the whole repository is read, and only
findings in these files are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gitops_ds import errors
from gitops_ds.model.values import replace
from gitops_ds.pipeline.open_repository import RepositoryRef

if TYPE_CHECKING:
    from gitops_ds.commands.check.model import CheckResult


def apart(first: str | None, more: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The repository and the files: a file in place of the repository is the first file."""
    if first is not None and Path(first).is_file():
        return None, (first, *more)
    return first, tuple(more)


def inside(files: Sequence[str], repository: RepositoryRef) -> frozenset[str]:
    """The files' names in the repository. Raises UsageError for a missing file, or one outside of
    it.
    """
    if not files:
        return frozenset()
    if repository.directory is None:
        raise errors.UsageError(
            f"{files[0]}: files are checked in a work tree; name a directory as the repository"
        )
    root = repository.directory / repository.path
    names = set()
    for file in files:
        if not Path(file).is_file():
            raise errors.UsageError(
                f"{file} is not a file: name one repository, or files of the work tree around you"
            )
        whole = Path(file).parent.resolve() / Path(file).name
        if not whole.is_relative_to(root):
            raise errors.UsageError(f"{file} is not in {root}")
        names.add(whole.relative_to(root).as_posix())
    return frozenset(names)


def only(checked: CheckResult, names: frozenset[str]) -> CheckResult:
    """The check with only the findings in these files; unchanged without files."""
    if not names:
        return checked
    return replace(
        checked,
        findings=tuple(one for one in checked.findings if one.place and one.place.file in names),
        suppressed=tuple(
            one for one in checked.suppressed if one[0].place and one[0].place.file in names
        ),
    )
