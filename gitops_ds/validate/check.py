"""One pass over a bundle and the files behind it: everything that is wrong, as findings at the line that must change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gitops_ds.kinds import origins
from gitops_ds.model.bundle import Bundle, Manifest
from gitops_ds.model.finding import Finding, Severity
from gitops_ds.model.objects import Path
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.validate import manifests, own, rules


def check(bundle: Bundle, snapshot: Snapshot) -> Iterator[Finding]:
    """Our own files, then manifest by manifest: the schemas of the cluster's versions, and the rules.

    The place of a finding is where the value was written in the snapshot: a parameter's value, a patch, a line of the manifest.
    The findings that rendering made (`bundle.findings`) are not repeated.
    """
    yield from own.check_repository(snapshot)
    files = origins.sources(snapshot)

    def finding(manifest: Manifest, severity: Severity, found: tuple[str, Path, str, bool], refused: bool) -> Finding:
        rule, path, message, on_key = found
        start, end = origins.locate_span(manifest.origin, path, files, key=on_key)
        return Finding(rule, severity, message, start, refused, manifest.key, path, end, bundle.cluster.name)

    for manifest in bundle.manifests.values():
        shape_is_right = True
        for complaint in manifests.check(manifest.body, bundle.cluster.kubernetes):
            shape_is_right &= not complaint.refused
            problem = complaint.problem
            told = (problem.rule, problem.path, problem.message, problem.on_key)
            yield finding(manifest, complaint.severity, told, complaint.refused)
        # The rules read the fields as the schema promises them; with another shape its complaints come first.
        if shape_is_right:
            for hit in rules.check(manifest.body, bundle.profile):
                told = (hit.rule.id, hit.path, hit.message, False)
                yield replace(finding(manifest, hit.severity, told, hit.rule.refused), fix=hit.fix)
