"""The check of a bundle and its sources: every violation as a finding, at the line to change."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from gitops_ds.checks.engine import phrases, repository_rules, rule_table
from gitops_ds.checks.engine.contexts import ChangeSides, ClusterContext, ClusterStep
from gitops_ds.checks.engine.rule import Context, ObjectRule, Rule, Violation, class_of
from gitops_ds.checks.engine.rule_table import Hit
from gitops_ds.checks.schema import custom_rules, error_messages, manifests, repository_files
from gitops_ds.checks.schema.error_messages import SchemaViolation
from gitops_ds.core import progress
from gitops_ds.core.finding import Finding, Place, RuleDefinition, Severity
from gitops_ds.core.objects import Digest, Key, digest_of
from gitops_ds.core.sources.bundle import Bundle, Custom, Manifest
from gitops_ds.core.sources.source_tree import Files, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source.rules import UNKNOWN_FIELD, WRONG_TYPE
from gitops_ds.yaml import parser, scalars
from gitops_ds.yaml.provenance import lookup

SETTINGS = "gitops-ds.yaml"
# The number of objects that are checked together.
TOGETHER = 64


def check(
    bundle: Bundle,
    snapshot: SourceTree,
    cluster: ClusterContext | None = None,
    *,
    files: bool = True,
    advice: bool = True,
) -> Iterator[Finding]:
    """Findings in this order: the repository's own files, each manifest (schemas of the cluster's
    versions, then rules), the cluster as a whole.

    A finding points at the source of the value: a parameter, a patch, a line of the manifest.
    Findings of the rendering (`bundle.findings`) are not repeated. `cluster` is the bundle with the
    cluster's nodes. Without `files` the repository's own files are skipped: they were checked for
    another cluster. Without `advice` only blocking rules run.
    """
    if files:
        yield from repository_files.check_repository(snapshot)
        yield from _unknown_switches(bundle, snapshot)
    sources = lookup.sources(snapshot)
    shapes_are_valid = True
    enabled = tuple(rule for rule in rule_table.enabled(bundle.rules) if advice or rule.refused)
    own_rules = custom_rules.read(bundle.custom if advice else ())
    clean = snapshot.cached.clean.get(circumstances(bundle), ())
    for broken, fault in own_rules.faults:
        yield _unusable(broken, fault, snapshot)
    for manifest, errors, hits in _violations(bundle, clean, enabled):
        yield from (_of_schema(error, manifest, bundle, sources) for error in errors)
        if _is_misshapen(errors):
            shapes_are_valid = False
            continue
        for hit in hits:
            yield _finding(hit.rule, hit.severity, hit.violation, manifest, bundle, sources)
        try:
            for custom, violation in custom_rules.check(own_rules, manifest):
                yield _finding(
                    custom_rules.RULE, custom.severity, violation, manifest, bundle, sources
                )
        except custom_rules.GaveNoVerdict as none:
            yield _unusable(none.rule, str(none), snapshot)
            own_rules = own_rules.without(none.rule)
    if shapes_are_valid and advice:
        yield from _cluster(bundle, cluster or ClusterContext(bundle.manifests), sources)


def _violations(
    bundle: Bundle, clean: Container[Digest], enabled: Sequence[ObjectRule]
) -> Iterator[tuple[Manifest, Sequence[SchemaViolation], Sequence[Hit]]]:
    """The schema violations of each manifest, then those of rules; none of the `clean` ones.

    File by file: the caller may prepare the later ones in parallel.
    """
    by_file = sorted(bundle.manifests.values(), key=lambda manifest: manifest.origin.base.file)
    for start in range(0, len(by_file), TOGETHER):
        together = by_file[start : start + TOGETHER]
        errors_of: dict[Key, tuple[SchemaViolation, ...]] = {}
        for manifest in together:
            progress.at(manifest.origin.base.file)
            if manifest.digest not in clean:
                violations = manifests.check(manifest.body, bundle.cluster.kubernetes)
                errors_of[manifest.key] = tuple(violations)
        # Rules rely on the shape that the schema guarantees.
        ready = [key for key, errors in errors_of.items() if not _is_misshapen(errors)]
        bodies = (bundle.manifests[key].body for key in ready)
        each = rule_table.check_each(bodies, bundle.profile, enabled)
        hits_of = dict(zip(ready, each, strict=True))
        for manifest in together:
            yield manifest, errors_of.get(manifest.key, ()), hits_of.get(manifest.key, ())


def _is_misshapen(errors: Iterable[SchemaViolation]) -> bool:
    return any(error.refused for error in errors)


def _finding(
    rule: RuleDefinition,
    severity: Severity,
    violation: Violation,
    manifest: Manifest,
    bundle: Bundle,
    sources: Files,
) -> Finding:
    """The finding of a violation, at the source of the value."""
    start, end = lookup.locate_span(manifest.origin, violation.path, sources)
    return Finding(
        rule.id,
        severity,
        violation.message,
        start,
        rule.refused,
        manifest.key,
        violation.path,
        end,
        bundle.cluster.name,
        violation.fix,
        _related(violation.related, bundle.manifests, sources),
    )


def _related(
    key: Key | None, manifests: Mapping[Key, Manifest], sources: Files
) -> tuple[Key, Place | None] | None:
    if key is None:
        return None
    manifest = manifests.get(key)
    place = lookup.locate(manifest.origin, ("metadata", "name"), sources) if manifest else None
    return key, place


def _of_schema(
    violation: SchemaViolation, manifest: Manifest, bundle: Bundle, sources: Files
) -> Finding:
    start, end = lookup.locate_span(manifest.origin, violation.path, sources, key=violation.on_key)
    violation = _as_written(violation, start, end, sources)
    return Finding(
        violation.rule.id,
        violation.severity,
        violation.message,
        start,
        violation.refused,
        manifest.key,
        violation.path,
        end,
        bundle.cluster.name,
        violation.fix,
    )


def _unusable(rule: Custom, why: str, snapshot: SourceTree) -> Finding:
    data = snapshot.files[PurePosixPath(SETTINGS)]
    start, end = parser.span(SETTINGS, data, rule.at.document, (*rule.at.path, "schema"))
    return Finding(custom_rules.RULE.id, Severity.ERROR, f"{rule.name}: {why}", start, end=end)


def circumstances(bundle: Bundle) -> str:
    """A digest of the inputs of an object's findings, except its body and the repository's own
    rules.
    """
    return digest_of(
        repr((bundle.cluster.kubernetes, bundle.profile, sorted(bundle.rules.items())))
    )


def _as_written(
    violation: SchemaViolation, start: Place | None, end: Place | None, sources: Files
) -> SchemaViolation:
    """A value that requires quotes keeps its source text: `1.10` and `yes`, not 1.1 and true."""
    fix = violation.fix
    text = fix.mends[0].value if fix and violation.rule is WRONG_TYPE else None
    if not isinstance(text, str) or not start or not end or start.line != end.line:
        return violation
    lines = sources.get(PurePosixPath(start.file), b"").decode("utf-8", "replace").splitlines()
    written = (
        lines[start.line - 1][start.column - 1 : end.column - 1]
        if 0 < start.line <= len(lines)
        else ""
    )
    # The source may be a template that contains the value, or a line of a chart.
    value = scalars.read(written) if written else None
    same = not isinstance(value, str | None) and error_messages.as_text(value) == text
    return error_messages.as_written(violation, written) if same else violation


def _cluster(bundle: Bundle, context: ClusterContext, sources: Files) -> Iterator[Finding]:
    from gitops_ds.checks.cluster import cluster_rules  # not needed for a plan

    for rule in cluster_rules.RULES:
        if not bundle.rules.get(rule.id, rule.on):
            continue
        violations, crash = _run(rule, context)
        if crash:
            yield crash
        for violation in violations:
            manifest = bundle.manifests[_object(violation)]
            severity = rule.severity_for(class_of(manifest.body), bundle.profile)
            yield _finding(rule, severity, violation, manifest, bundle, sources)


def _object(violation: Violation) -> Key:
    if violation.object is None:
        raise ValueError(f"a violation over several objects names none: {violation.message}")
    return violation.object


def _run(rule: Rule[Context], context: Context) -> tuple[list[Violation], Finding | None]:
    """The violations of a rule. A rule that raises is reported (`CRASHED`)."""
    try:
        return list(rule.check(context)), None
    except MemoryError:  # not caused by the rule: the next one would fail as well
        raise
    except Exception as error:  # isolate rules from each other: the others must still run
        message = f"rule {rule.id} failed: {error!r}; please report it"
        return [], rule_table.CRASHED.finding(message)


def _unknown_switches(bundle: Bundle, snapshot: SourceTree) -> Iterator[Finding]:
    if not bundle.rules:
        return
    from gitops_ds.checks.engine import catalogue

    known = {rule.id for rule in catalogue.rows()}
    for name in bundle.rules:
        if name not in known:
            data = snapshot.files[PurePosixPath(SETTINGS)]
            place = parser.span(SETTINGS, data, 0, ("rules", name), key=True)[0]
            hint = phrases.did_you_mean(name, known)
            message = f'rule "{name}" not found{hint} (see docs/rules.md)'
            yield UNKNOWN_FIELD.warning(message, place)


def compare(sides: ChangeSides, head: Bundle, snapshot: SourceTree) -> Iterator[Finding]:
    """The findings of the rules over a change. A deleted object has no place."""
    from gitops_ds.checks.change import object_changes

    sources = lookup.sources(snapshot)
    for rule in object_changes.RULES:
        if not (rule.refused or head.rules.get(rule.id, rule.on)):
            continue
        violations, crash = _run(rule, sides)
        if crash:
            yield crash
        for violation in violations:
            key = _object(violation)
            manifest = head.manifests.get(key)
            body = (manifest or sides.base[key]).body
            severity = rule.severity_for(class_of(body), head.profile)
            if manifest:
                yield _finding(rule, severity, violation, manifest, head, sources)
            else:
                yield Finding(
                    rule.id,
                    severity,
                    f"{key}: {violation.message}",
                    refused=rule.refused,
                    object=key,
                    path=violation.path,
                    cluster=head.cluster.name,
                    fix=violation.fix,
                    other=_related(violation.related, head.manifests, sources),
                )


def across(
    steps: Sequence[ClusterStep], heads: Mapping[str, Bundle], snapshot: SourceTree
) -> Iterator[Finding]:
    """The findings of the rules over a change of several clusters; `heads` are the bundles by
    cluster.
    """
    from gitops_ds.checks.change import promotion

    sources = lookup.sources(snapshot)
    for rule in promotion.RULES:
        if not any(head.rules.get(rule.id, rule.on) for head in heads.values()):
            continue
        violations, crash = _run(rule, steps)
        if crash:
            yield crash
        for violation in violations:
            head = heads[violation.cluster]
            manifest = head.manifests[_object(violation)]
            severity = rule.severity_for(class_of(manifest.body), head.profile)
            finding = _finding(rule, severity, violation, manifest, head, sources)
            yield replace(finding, cluster=violation.cluster)


def repository(heads: Mapping[str, Bundle], snapshot: SourceTree) -> Iterator[Finding]:
    """The findings of the rules over a repository, once all its clusters are rendered."""
    rule, bundles = repository_rules.NO_CLUSTER, list(heads.values())
    for place, message in repository_rules.check(bundles, snapshot):
        if any(head.rules.get(rule.id, rule.on) for head in bundles):
            yield Finding(rule.id, rule.severity_for("", bundles[0].profile), message, place)


def differing(one: Bundle, again: Bundle, snapshot: SourceTree) -> Iterator[Finding]:
    """The objects that differ in a second rendering of the same commit."""
    sources = lookup.sources(snapshot)
    rule = repository_rules.SAME_TWICE
    for violation in repository_rules.differences(one, again):
        key = _object(violation)
        manifest = one.manifests.get(key)
        severity = rule.severity_for(class_of(manifest.body) if manifest else "", one.profile)
        if manifest:
            yield _finding(rule, severity, violation, manifest, one, sources)
        else:
            yield Finding(
                rule.id, severity, violation.message, object=key, cluster=one.cluster.name
            )
