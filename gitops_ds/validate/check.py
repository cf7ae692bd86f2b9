"""One pass over a bundle and the files behind it: everything that is wrong, as findings at the line that must change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from gitops_ds.kinds import documents, origins
from gitops_ds.model.bundle import Bundle, Manifest
from gitops_ds.model.finding import Finding, Severity
from gitops_ds.model.live import Node
from gitops_ds.model.objects import Path
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.validate import changes, fleet, manifests, own, rules, words
from gitops_ds.validate.rule import class_of, softened

SETTINGS = "gitops-ds.yaml"


def check(bundle: Bundle, snapshot: Snapshot, nodes: Sequence[Node] | None = None) -> Iterator[Finding]:
    """Our own files; manifest by manifest the schemas of the cluster's versions, and the rules; at last the whole fleet.

    The place of a finding is where the value was written in the snapshot: a parameter's value, a patch, a line of the manifest.
    The findings that rendering made (`bundle.findings`) are not repeated. `nodes` are those of the cluster, None where they are
    not known.
    """
    yield from own.check_repository(snapshot)
    yield from _unknown_switches(bundle, snapshot)
    files = origins.sources(snapshot)

    def finding(manifest: Manifest, severity: Severity, found: tuple[str, Path, str, bool], refused: bool) -> Finding:
        rule, path, message, on_key = found
        start, end = origins.locate_span(manifest.origin, path, files, key=on_key)
        return Finding(rule, severity, message, start, refused, manifest.key, path, end, bundle.cluster.name)

    shapes_are_right = True
    looking = rules.wanted(bundle.rules)
    for manifest in bundle.manifests.values():
        shape_is_right = True
        for complaint in manifests.check(manifest.body, bundle.cluster.kubernetes):
            shape_is_right &= not complaint.refused
            problem = complaint.problem
            told = (problem.rule, problem.path, problem.message, problem.on_key)
            yield finding(manifest, complaint.severity, told, complaint.refused)
        shapes_are_right &= shape_is_right
        # The rules read the fields as the schema promises them; with another shape its complaints come first.
        if shape_is_right:
            for hit in rules.check(manifest.body, bundle.profile, looking):
                told = (hit.rule.id, hit.path, hit.message, False)
                yield replace(finding(manifest, hit.severity, told, hit.rule.refused), fix=hit.fix)
    if shapes_are_right:
        whole = fleet.Fleet(bundle.manifests, nodes)
        for rule in fleet.RULES:
            for key, path, message in rule.check(whole) if bundle.rules.get(rule.id, rule.on) else ():
                manifest = bundle.manifests[key]
                severity = softened(rule.severity, class_of(manifest.body), bundle.profile)
                yield finding(manifest, severity, (rule.id, path, message, False), False)


def _unknown_switches(bundle: Bundle, snapshot: Snapshot) -> Iterator[Finding]:
    known = {rule.id for rule in rules.RULES} | {rule.id for rule in fleet.RULES} | {rule.id for rule in changes.RULES}
    for name in bundle.rules:
        if name not in known:
            place = documents.span(SETTINGS, snapshot.files[PurePosixPath(SETTINGS)], 0, ("rules", name), key=True)[0]
            hint = words.did_you_mean(name, known)
            yield Finding("DS003", Severity.WARNING, f'there is no rule "{name}" to switch{hint} (docs/rules.md lists them)', place)


def compare(base: Bundle, head: Bundle, snapshot: Snapshot) -> Iterator[Finding]:
    """What the rules over a change have against it. An object that is gone has no place in the head's files."""
    files = origins.sources(snapshot)
    for rule in changes.RULES:
        on = rule.refused or head.rules.get(rule.id, rule.on)
        for key, path, message in rule.check(changes.Sides(base.manifests, head.manifests)) if on else ():
            manifest = head.manifests.get(key)
            start, end = origins.locate_span(manifest.origin, path, files) if manifest else (None, None)
            known = manifest or base.manifests[key]
            severity = rule.severity if rule.refused else softened(rule.severity, class_of(known.body), head.profile)
            text = message if manifest else f"{key}: {message}"
            yield Finding(rule.id, severity, text, start, rule.refused, key, path, end, head.cluster.name)
