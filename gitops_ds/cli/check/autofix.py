"""`check --fix`: applies fixes to the source files of objects, if they have exactly the described
effect.

The edited files are rendered and checked before they are written: every object must be the old one
with its fixes, for all clusters and variants, without new blocking findings. If edits violate that,
the faulty ones are found by bisection and omitted.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

import msgspec

from gitops_ds.checks.report.findings import Replacement
from gitops_ds.cli.check import source_edits
from gitops_ds.cli.check.model import CheckResult
from gitops_ds.cli.check.source_edits import FileEdit
from gitops_ds.core.change import Operation
from gitops_ds.core.finding import Finding, Mend
from gitops_ds.core.objects import Body, Key, Path
from gitops_ds.core.sources.source_tree import Files, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.source.git import atomic_write
from gitops_ds.source.render import bundle as rendering
from gitops_ds.yaml import edit as yaml_edit
from gitops_ds.yaml.edit import Edit

CheckFunction = Callable[[SourceTree], CheckResult]
# The object of a fix, and its cluster.
_Object = tuple[str, Key]

# A fix may reveal another fixable finding, and two fixes of one place need two rounds.
_MOST_TURNS: Final = 10
_TEMPLATE: Final[Path] = ("spec", "template")
_API: Final[Path] = ("apiVersion",)

_NO_PLACE: Final = "no single place in the files has the rendered value: change it manually"
_AT_ONE_PLACE: Final = "another fix changes the same place"
_RESTARTS: Final = (
    "it would restart the pods of {} on every node, which the change does not: use --fix without "
    "--base"
)


class Fixed(msgspec.Struct, frozen=True):
    """The files that change, and a check of the repository with them. `done` and `left` are in
    order of their findings.

    `left` has the reason for each unfixed finding with a fix of the requested kind. `restarts` are
    the DaemonSets whose pods are replaced.
    """

    checked: CheckResult
    files: Files
    done: tuple[Finding, ...] = ()
    left: tuple[tuple[Finding, str], ...] = ()
    restarts: tuple[Key, ...] = ()


class _FixCandidate(msgspec.Struct, frozen=True):
    """The fix of findings that have the same edits."""

    edits: tuple[FileEdit, ...]
    findings: tuple[Finding, ...]
    safe: bool


@dataclass(slots=True)
class _FixRound:
    """The check before, and the accepted candidates so far."""

    before: CheckResult
    check: CheckFunction
    after: CheckResult
    taken: list[_FixCandidate] = field(default_factory=list)
    left: list[tuple[Finding, str]] = field(default_factory=list)


def fix(checked: CheckResult, check: CheckFunction, *, unsafe: bool = False) -> Fixed:
    """Applies the safe fixes (`unsafe`: the proposals too) of the findings of a check to its files,
    repeatedly, until no fix remains.

    `check` checks another snapshot with the same options. With a base, a fix in a pod template is
    omitted unless the change restarts these pods anyway.
    """
    start, done = checked, list[Finding]()
    left: dict[Finding, str] = {}
    may_restart = _rolling(checked)
    for _ in range(_MOST_TURNS):
        candidates, left = _candidates(checked, may_restart, unsafe=unsafe)
        turn = _FixRound(checked, check, checked)
        # Safe fixes come first, because they may make a proposal obsolete.
        for safe in (True, False):
            apart, waiting = (
                _apart(candidate for candidate in candidates if candidate.safe is safe)
                if not turn.taken
                else ([], [])
            )
            _settle(turn, apart)
            left |= {
                finding: _AT_ONE_PLACE for candidate in waiting for finding in candidate.findings
            }
        left |= dict(turn.left)
        if not turn.taken:
            break
        done += [finding for candidate in turn.taken for finding in candidate.findings]
        checked = turn.after
    files = {
        path: data
        for path, data in checked.snapshot.files.items()
        if data != start.snapshot.files[path]
    }
    return Fixed(
        checked,
        files,
        _each_once(done),
        tuple(_once(left).items()),
        tuple(_restarted(start, checked)),
    )


def write(fixed: Fixed, repository: open_repository.RepositoryRef, sources: SourceTree) -> None:
    """Writes the files to the work tree of the snapshot: all, or none. Raises the errors of
    `atomic_write.overwrite`.
    """
    assert repository.directory is not None, "only a work tree can be fixed"
    atomic_write.overwrite(repository.directory, repository.path, fixed.files, sources.files)


def replacements(checked: CheckResult) -> dict[Finding, tuple[Replacement, ...]]:
    """The changes of the files by the fix of each finding that has a single place."""
    sources = source_edits.Sources(checked.snapshot)
    by_finding: dict[Finding, tuple[Replacement, ...]] = {}
    for finding in checked.findings:
        edits = edits_of(finding, checked, sources) if finding.fix else None
        if edits:
            with contextlib.suppress(ValueError):
                by_finding[finding] = _replacements(checked.snapshot.files, edits)
    return by_finding


def _replacements(files: Files, edits: Sequence[FileEdit]) -> tuple[Replacement, ...]:
    all_edits = []
    for file in dict.fromkeys(file for file, _ in edits):
        data = files[file]
        made = yaml_edit.apply(data, [edit for other, edit in edits if other == file])
        old, new = (
            text.decode("utf-8", "replace").splitlines(keepends=True) for text in (data, made)
        )
        for start, end, lines in _changed_lines(old, new):
            # After a last line without a line end there is no line for the end of the replacement.
            past = (
                (end + 1, 1)
                if end < len(old) or not old or old[-1].endswith("\n")
                else (end, len(old[-1]) + 1)
            )
            all_edits.append(Replacement(str(file), (start + 1, 1), past, "".join(lines)))
    return tuple(all_edits)


def _changed_lines(old: list[str], new: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """The changed lines: the first one (from 0) and the exclusive end."""
    same = next(
        (i for i, (before, after) in enumerate(zip(old, new, strict=False)) if before != after),
        min(len(old), len(new)),
    )
    most = min(len(old), len(new)) - same
    tail = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    middle = difflib.SequenceMatcher(
        None, old[same : len(old) - tail], new[same : len(new) - tail], autojunk=False
    )
    for tag, start, end, first, last in middle.get_opcodes():
        if tag != "equal":
            yield same + start, same + end, new[same + first : same + last]


def _candidates(
    checked: CheckResult, may_restart: frozenset[_Object] | None, *, unsafe: bool
) -> tuple[list[_FixCandidate], dict[Finding, str]]:
    """The possible fixes, safe ones first; and why other findings can't be fixed."""
    sources = source_edits.Sources(checked.snapshot)
    by_edits: dict[str, _FixCandidate] = {}
    left: dict[Finding, str] = {}
    findings = [
        finding for finding in checked.findings if finding.fix and (finding.fix.safe or unsafe)
    ]
    for finding in sorted(findings, key=lambda finding: not (finding.fix and finding.fix.safe)):
        edits = edits_of(finding, checked, sources)
        restarted = _restarted_by(finding, checked, may_restart)
        if not edits:
            left[finding] = _NO_PLACE
        elif restarted:
            left[finding] = _RESTARTS.format(restarted)
        else:
            entry = by_edits.setdefault(
                repr(edits), _FixCandidate(tuple(edits), (), bool(finding.fix and finding.fix.safe))
            )
            by_edits[repr(edits)] = replace(entry, findings=(*entry.findings, finding))
    return list(by_edits.values()), left


def edits_of(
    finding: Finding, checked: CheckResult, sources: source_edits.Sources
) -> list[FileEdit] | None:
    """The edits of a finding's fix by file; None if they have no single place."""
    mends = finding.fix.mends if finding.fix else ()
    if finding.object is None:
        return sources.in_document(finding, mends)
    for cluster in checked.prepared:
        manifest = cluster.bundle.manifests.get(finding.object)
        if manifest is not None and finding.cluster in ("", cluster.bundle.cluster.name):
            return source_edits.edits(manifest, mends, sources)
    return None


def _rolling(checked: CheckResult) -> frozenset[_Object] | None:
    """The DaemonSets whose pods a change restarts; None without a base."""
    if checked.changed is None:
        return None
    return frozenset(
        (cluster, change.key)
        for group in checked.changed
        for change in group.changes
        for cluster in group.clusters
        if change.operation is Operation.CREATE or (change.rollout and change.rollout.rolls)
    )


def _restarted_by(
    finding: Finding, checked: CheckResult, may_restart: frozenset[_Object] | None
) -> Key | None:
    """The DaemonSet whose pods only the fix would restart."""
    key = finding.object
    if key is None or not key.is_daemonset or may_restart is None or finding.fix is None:
        return None
    on = [name for name in _names(checked) if finding.cluster in ("", name)]
    in_template = any(mend.path[:2] == _TEMPLATE for mend in finding.fix.mends)
    return key if in_template and not all((name, key) in may_restart for name in on) else None


def _apart(candidates: Iterable[_FixCandidate]) -> tuple[list[_FixCandidate], list[_FixCandidate]]:
    """The candidates with separate places, and those that must wait for one of these."""
    apart, waiting = [], []
    places: set[tuple[PurePosixPath, int, Path]] = set()
    above: set[tuple[PurePosixPath, int, Path]] = set()
    for candidate in candidates:
        own = [(file, edit.document, edit.path) for file, edit in candidate.edits]
        up = {
            (file, document, path[:length])
            for file, document, path in own
            for length in range(len(path))
        }
        if places & {*own, *up} or above.intersection(own):
            waiting.append(candidate)
        else:
            apart.append(candidate)
            places.update(own)
            above |= up
    return apart, waiting


def _settle(turn: _FixRound, candidates: Sequence[_FixCandidate]) -> None:
    """Accepts all candidates, or the halves that pass."""
    if not candidates:
        return
    tried = [*turn.taken, *candidates]
    after = _tried(turn, tried)
    if isinstance(after, CheckResult):
        turn.taken, turn.after = tried, after
    elif len(candidates) == 1:
        turn.left += [(finding, after) for finding in candidates[0].findings]
    else:
        half = len(candidates) // 2
        _settle(turn, candidates[:half])
        _settle(turn, candidates[half:])


def _tried(turn: _FixRound, candidates: Sequence[_FixCandidate]) -> CheckResult | str:
    """The check with these edits, or why they are not accepted."""
    by_file: dict[PurePosixPath, list[Edit]] = {}
    for file, edit in (edit for candidate in candidates for edit in candidate.edits):
        by_file.setdefault(file, []).append(edit)
    files = dict(turn.before.snapshot.files)
    try:
        files |= {file: yaml_edit.apply(files[file], edits) for file, edits in by_file.items()}
    except ValueError as error:
        return f"{error}: change it manually"
    after = turn.check(replace(turn.before.snapshot, files=files))
    return (
        _harm(
            turn.before,
            after,
            [finding for candidate in candidates for finding in candidate.findings],
        )
        or after
    )


def _harm(before: CheckResult, after: CheckResult, mended: Sequence[Finding]) -> str:
    """An effect of the fixes that they do not describe; empty without one."""
    mends: dict[_Object, list[Mend]] = {}
    for finding in mended:
        for name in _names(before):
            if finding.object and finding.fix and finding.cluster in ("", name):
                mends.setdefault((name, finding.object), []).extend(finding.fix.mends)
    made = _bodies(after)
    names = {object: _as_before(object, body, mends) for object, body in made.items()}
    was = {_who(finding) for finding in _refused(before)}
    for finding in _refused(after):
        if _who(finding, names) not in was:
            return f"then {finding.rule} would report it: {finding.message}"
    old, new = _bodies(before), {names[object]: body for object, body in made.items()}
    for object in dict.fromkeys((*old, *new)):
        cluster, key = object
        if object not in old or object not in new:
            return f"{key} would be added or removed"
        own = mends.get(object, [])
        meant: list[Body | None] = [] if object in mends else [old[object]]
        # ignored: the fix of the object in another cluster may apply here too
        if cluster not in _names(before):
            own = [mend for (_, other), some in mends.items() if other == key for mend in some]
        if own:
            meant.append(_mended(old[object], own))
        if new[object] not in meant:
            where = f" on {cluster}" if cluster else ""
            what = (
                f"{key} does not get the intended value"
                if object in mends
                else f"it would change {key} too"
            )
            if object in mends and new[object] == old[object] and before.snapshot.expanded:
                what = f"helm or kustomize generates {key} from the value there"
            return f"{what}{where}: change it manually"
    return ""


def _as_before(object: _Object, body: Body, mends: Mapping[_Object, Sequence[Mend]]) -> _Object:
    """The former key of the object: a fix may have changed its API group."""
    cluster, key = object
    for (_, old), some in mends.items():
        if replace(old, group=key.group) == key and any(
            (_API, body.get("apiVersion")) == (mend.path, mend.value) for mend in some
        ):
            return cluster, old
    return object


def _refused(checked: CheckResult) -> Iterator[Finding]:
    """The blocking findings, reported or suppressed."""
    every = (
        *checked.findings,
        *(finding for cluster in checked.prepared for finding in cluster.findings),
    )
    return (finding for finding in every if finding.refused)


def _who(
    finding: Finding, names: Mapping[_Object, _Object] = MappingProxyType({})
) -> tuple[str, Key | str]:
    if finding.object is None:
        return finding.cluster, finding.place.file if finding.place else ""
    object = (finding.cluster, finding.object)
    return names.get(object, object)


def _mended(body: Body, mends: Iterable[Mend]) -> Body | None:
    distinct: list[Mend] = []
    for mend in mends:
        if mend not in distinct:
            distinct.append(mend)
    try:
        made: Body = yaml_edit.changed(
            body, [Edit(0, mend.path, mend.value, mend.key, make=True) for mend in distinct]
        )
    except ValueError:
        return None
    return made


def _names(checked: CheckResult) -> list[str]:
    return [cluster.bundle.cluster.name for cluster in checked.prepared]


def _bodies(checked: CheckResult) -> dict[_Object, Body]:
    """The objects of all clusters, also of unselected ones, because they have the same files."""
    by_cluster = {
        cluster.bundle.cluster.name: cluster.bundle.manifests for cluster in checked.prepared
    }
    for name in rendering.clusters(checked.snapshot):
        if name not in by_cluster:
            by_cluster[name] = rendering.render(checked.snapshot, cluster=name).manifests
    return {
        (name, key): manifest.body
        for name, manifests in by_cluster.items()
        for key, manifest in manifests.items()
    }


def _restarted(before: CheckResult, after: CheckResult) -> list[Key]:
    old, new = _bodies(before), _bodies(after)
    changed = (
        key
        for (cluster, key), body in new.items()
        if key.is_daemonset
        and _rolls(body)
        and _template(body) != _template(old.get((cluster, key), {}))
    )
    return list(dict.fromkeys(changed))


def _rolls(body: Body) -> bool:
    return ((body.get("spec") or {}).get("updateStrategy") or {}).get("type") != "OnDelete"


def _template(body: Body) -> object:
    return (body.get("spec") or {}).get("template")


def _each_once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of several clusters, each once."""
    return tuple({finding.on_cluster(""): finding for finding in findings}.values())


def _once(left: Mapping[Finding, str]) -> dict[Finding, str]:
    return {finding: left[finding] for finding in _each_once(left)}
