"""One pass over a bundle and the files behind it: everything that is wrong, as findings at the line
that must change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import phrases, repository_rules, rule_table
from gitops_ds.checks.engine.cluster_context import ClusterContext
from gitops_ds.checks.engine.rule import class_of, softened
from gitops_ds.checks.schema import custom_rules, error_messages, manifests, repository_files
from gitops_ds.checks.schema.error_messages import TYPE, Problem
from gitops_ds.model import content_hash
from gitops_ds.model.bundle import Bundle, Custom, Manifest
from gitops_ds.model.finding import Finding, Fix, Place, Severity
from gitops_ds.model.objects import Key, Path
from gitops_ds.model.snapshot import Files, Snapshot
from gitops_ds.yaml import parser, scalars
from gitops_ds.yaml.provenance import lookup

if TYPE_CHECKING:
    from gitops_ds.checks.engine.change_context import ChangeSides, ClusterStep

SETTINGS = "gitops-ds.yaml"

T = TypeVar("T")

Other = tuple[Key, Place | None]


def check(
    bundle: Bundle,
    snapshot: Snapshot,
    whole: ClusterContext | None = None,
    *,
    files: bool = True,
    advice: bool = True,
) -> Iterator[Finding]:
    """Our own files; manifest by manifest the schemas of the cluster's versions, and the rules; at
    last the whole fleet.

    The place of a finding is where the value was written in the snapshot: a parameter's value, a
    patch, a line of the manifest. The findings that rendering made (`bundle.findings`) are not
    repeated. `whole` is the bundle with what is known of the cluster's nodes. Not `files`: the
    repository's own files were judged already, for another cluster. Not `advice`: of the rules only
    those look whose findings stand in the way.
    """
    if files:
        yield from repository_files.check_repository(snapshot)
        yield from _unknown_switches(bundle, snapshot)
    sources = lookup.sources(snapshot)

    def finding(
        manifest: Manifest, severity: Severity, found: tuple[str, Path, str, bool], refused: bool
    ) -> Finding:
        rule, path, message, on_key = found
        start, end = lookup.locate_span(manifest.origin, path, sources, key=on_key)
        return Finding(
            rule, severity, message, start, refused, manifest.key, path, end, bundle.cluster.name
        )

    shapes_are_right = True
    looking = tuple(rule for rule in rule_table.wanted(bundle.rules) if advice or rule.refused)
    own_rules = custom_rules.read(bundle.custom if advice else ())
    clean, here = snapshot.known.clean, circumstances(bundle)
    for broken, fault in own_rules.faults:
        yield _unusable(broken, fault, snapshot)
    # File by file: somebody may be finding out about the later ones meanwhile.
    for manifest in sorted(bundle.manifests.values(), key=lambda one: one.origin.base.file):
        shape_is_right = True
        is_known = manifest.digest in clean.get(here, ())
        for complaint in (
            () if is_known else manifests.check(manifest.body, bundle.cluster.kubernetes)
        ):
            shape_is_right &= not complaint.refused
            problem = complaint.problem
            told = (problem.rule, problem.path, problem.message, problem.on_key)
            made = finding(manifest, complaint.severity, told, complaint.refused)
            yield replace(made, fix=_as_written(problem, made, sources))
        shapes_are_right &= shape_is_right
        # The rules read the fields as the schema promises them; with another shape its complaints
        # come first.
        if shape_is_right:
            for hit in () if is_known else rule_table.check(manifest.body, bundle.profile, looking):
                told = (hit.rule.id, hit.path, hit.message, False)
                yield replace(finding(manifest, hit.severity, told, hit.rule.refused), fix=hit.fix)
            try:
                for rule, path, message in custom_rules.check(own_rules, manifest):
                    yield finding(
                        manifest, rule.severity, (custom_rules.RULE.id, path, message, False), False
                    )
            except custom_rules.GaveNoVerdict as none:
                yield _unusable(none.rule, str(none), snapshot)
                own_rules = own_rules.without(none.rule)
    if shapes_are_right and advice:
        yield from _fleet(bundle, whole or ClusterContext(bundle.manifests), finding, sources)


def _unusable(rule: Custom, why: str, snapshot: Snapshot) -> Finding:
    data = snapshot.files[PurePosixPath(SETTINGS)]
    start, end = parser.span(SETTINGS, data, rule.at.document, (*rule.at.path, "schema"))
    return Finding(custom_rules.RULE.id, Severity.ERROR, f"{rule.name}: {why}", start, end=end)


def circumstances(bundle: Bundle) -> str:
    """A name for all that the verdict over a single object hangs on beside its body (and the
    repository's own rules).
    """
    return content_hash.digest(
        repr((bundle.cluster.kubernetes, bundle.profile, sorted(bundle.rules.items())))
    )


def _as_written(problem: Problem, found: Finding, files: Files) -> Fix | None:
    """The fix of a complaint; where something needs quotes, these go around what the file says:
    `1.10`, `yes`, not 1.1, true.
    """
    fix, start, end = problem.fix, found.place, found.end
    text = fix.mends[0].value if fix and problem.rule == TYPE else None
    if not isinstance(text, str) or not start or not end or start.line != end.line:
        return fix
    lines = files.get(PurePosixPath(start.file), b"").decode("utf-8", "replace").splitlines()
    written = (
        lines[start.line - 1][start.column - 1 : end.column - 1]
        if 0 < start.line <= len(lines)
        else ""
    )
    # What stands there may be a template with the value in it, or the line of a chart.
    meant = scalars.read(written) if written else None
    same = not isinstance(meant, str | None) and error_messages.as_text(meant) == text
    return error_messages.quoted(problem.path, written, safe=True) if same else fix


def _fleet(
    bundle: Bundle, whole: ClusterContext, finding: Callable[..., Finding], files: Files
) -> Iterator[Finding]:
    for rule in cluster_rules.RULES:
        told, crash = (
            _to_its_end(rule.id, partial(rule.check, whole))
            if bundle.rules.get(rule.id, rule.on)
            else ([], None)
        )
        if crash:
            yield crash
        for key, path, message, *more in told:
            manifest = bundle.manifests[key]
            kind = class_of(manifest.body)
            severity = rule.severity_for(kind, bundle.profile)
            fix, other = _more(more, bundle.manifests, files)
            yield replace(
                finding(manifest, severity, (rule.id, path, message, False), False),
                fix=fix,
                other=other,
            )


def _more(
    told: Sequence[object], manifests: Mapping[Key, Manifest], files: Files
) -> tuple[Fix | None, Other | None]:
    """How to mend it, and the other object that it is about, of what a rule tells beside its
    sentence.
    """
    fix = next((one for one in told if isinstance(one, Fix)), None)
    key = next((one for one in told if isinstance(one, Key)), None)
    if key is None:
        return fix, None
    there = manifests.get(key)
    return fix, (key, lookup.locate(there.origin, ("metadata", "name"), files) if there else None)


def _to_its_end(rule: str, check: Callable[[], Iterable[T]]) -> tuple[list[T], Finding | None]:
    """What a rule has to say; one that fails is no silence: it is told as DS904."""
    try:
        return list(check()), None
    except MemoryError:  # no rule's own fault: nobody else would have any
        raise
    except (
        Exception
    ) as error:  # a rule is a guest here: one that fails must not take the others with it
        crashed = rule_table.CRASHED
        return [], Finding(
            crashed.id, crashed.severity, f"the rule {rule} failed: {error!r}; please report it"
        )


def _unknown_switches(bundle: Bundle, snapshot: Snapshot) -> Iterator[Finding]:
    if not bundle.rules:
        return
    from gitops_ds.checks.engine import catalogue

    known = {rule.id for rule in catalogue.rows()}
    for name in bundle.rules:
        if name not in known:
            place = parser.span(
                SETTINGS, snapshot.files[PurePosixPath(SETTINGS)], 0, ("rules", name), key=True
            )[0]
            hint = phrases.did_you_mean(name, known)
            yield Finding(
                "DS003",
                Severity.WARNING,
                f'there is no rule "{name}" to switch{hint} (docs/rules.md lists them)',
                place,
            )


def compare(sides: ChangeSides, head: Bundle, snapshot: Snapshot) -> Iterator[Finding]:
    """What the rules over a change have against it. An object that is gone has no place in the
    head's files.
    """
    from gitops_ds.checks.change import object_changes

    files = lookup.sources(snapshot)
    for rule in object_changes.RULES:
        on = rule.refused or head.rules.get(rule.id, rule.on)
        told, crash = _to_its_end(rule.id, partial(rule.check, sides)) if on else ([], None)
        if crash:
            yield crash
        for key, path, message, *more in told:
            manifest = head.manifests.get(key)
            start, end = (
                lookup.locate_span(manifest.origin, path, files) if manifest else (None, None)
            )
            fix, other = _more(more, head.manifests, files)
            known = manifest or sides.base[key]
            severity = (
                rule.severity
                if rule.refused
                else softened(rule.severity, class_of(known.body), head.profile)
            )
            text = message if manifest else f"{key}: {message}"
            yield Finding(
                rule.id,
                severity,
                text,
                start,
                rule.refused,
                key,
                path,
                end,
                head.cluster.name,
                fix,
                other,
            )


def across(
    steps: Sequence[ClusterStep], heads: Mapping[str, Bundle], snapshot: Snapshot
) -> Iterator[Finding]:
    """What the rules over a change of several clusters have against it; `heads` are the bundles by
    cluster.
    """
    from gitops_ds.checks.change import promotion

    files = lookup.sources(snapshot)
    for rule in promotion.RULES:
        on = any(head.rules.get(rule.id, rule.on) for head in heads.values())
        told, crash = _to_its_end(rule.id, partial(rule.check, steps)) if on else ([], None)
        if crash:
            yield crash
        for cluster, key, path, message in told:
            manifest = heads[cluster].manifests[key]
            start, end = lookup.locate_span(manifest.origin, path, files)
            severity = softened(rule.severity, class_of(manifest.body), heads[cluster].profile)
            yield Finding(rule.id, severity, message, start, False, key, path, end, cluster)


def repository(heads: Mapping[str, Bundle], snapshot: Snapshot) -> Iterator[Finding]:
    """What the rules over a repository have against it, once all its clusters are rendered."""
    for rule, place, message in repository_rules.check(list(heads.values()), snapshot):
        if any(head.rules.get(rule.id, rule.on) for head in heads.values()):
            profile = next(head.profile for head in heads.values())
            yield Finding(rule.id, softened(rule.severity, "", profile), message, place)


def differing(one: Bundle, again: Bundle, snapshot: Snapshot) -> Iterator[Finding]:
    """DS805: what a second rendering of the same commit made otherwise."""
    files = lookup.sources(snapshot)
    for key, path, message in repository_rules.differences(one, again):
        manifest = one.manifests.get(key)
        start, end = lookup.locate_span(manifest.origin, path, files) if manifest else (None, None)
        rule = repository_rules.SAME_TWICE
        severity = softened(rule.severity, class_of(manifest.body) if manifest else "", one.profile)
        yield Finding(rule.id, severity, message, start, False, key, path, end, one.cluster.name)
