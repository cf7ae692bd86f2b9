"""One ConfigMap or Secret with templates: its keys as files, rendered and checked as the files of
a commit. Pure.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import SECRET, Body, CommitId, Key
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Manifest, ManifestOrigin
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.templates.template_selector import TemplateSelector

_SUFFIXES = (".yaml", ".yml", ".json")
# A key of any name is a template if a line of its text starts an object in YAML or JSON. The
# pattern matches blanks only within a line: across lines it would need quadratic time in the event
# loop.
_OBJECT = re.compile(rb"""(?:^|[{,])[ \t-]*["']?apiVersion["']?\s*:""", re.MULTILINE)


class TemplateObject(msgspec.Struct, frozen=True, eq=False):
    """An object with templates, at one version. `unread` are the keys with binary values."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    created: str
    files: Mapping[PurePosixPath, bytes]
    unread: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The name of the object: `configmap/NAMESPACE/NAME`; a file is that and its key."""
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"

    @property
    def commit(self) -> CommitId:
        """The version of the object, in place of a commit."""
        return CommitId(f"{self.source}@{self.version}")

    @property
    def secret(self) -> bool:
        """Whether messages must not quote the values."""
        return self.kind == SECRET.kind


class RenderedTemplates(msgspec.Struct, frozen=True):
    """The manifests of a template object, and its skipped parts: with a `broken` finding, all
    manifests. `keeps`: none of its objects is deleted.
    """

    manifests: Mapping[Key, Manifest]
    refusals: tuple[Skipped, ...] = ()
    broken: tuple[Finding, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether the objects that this template object defined before are kept."""
        return bool(self.broken or any(refusal.key for refusal in self.refusals))


def read(body: Body) -> TemplateObject:
    """The template object of a body; the values of a Secret are decoded. Keys without a manifest,
    by name or by content, are ignored.
    """
    metadata, kind = body["metadata"], str(body.get("kind"))
    holder = PurePosixPath(kind.lower(), metadata["namespace"], metadata["name"])
    files, unread = {}, list(body.get("binaryData") or ())
    for key, text in (body.get("data") or {}).items():
        data = _decoded(text) if kind == SECRET.kind else str(text).encode()
        if data is None:
            unread.append(key)
        elif key.endswith(_SUFFIXES) or _OBJECT.search(data):
            files[holder / key] = data
    uid, version, created = (
        str(metadata.get(name) or "") for name in ("uid", "resourceVersion", "creationTimestamp")
    )
    return TemplateObject(
        kind,
        metadata["namespace"],
        metadata["name"],
        uid,
        version,
        created,
        files,
        tuple(sorted(unread)),
    )


def _decoded(text: str) -> bytes | None:
    """The decoded value; None for one that is not UTF-8."""
    try:
        data = base64.b64decode(text)
        data.decode()
    except (binascii.Error, ValueError):
        return None
    return data


def render(holder: TemplateObject, chosen: TemplateSelector) -> RenderedTemplates:
    """Renders the keys of an object, each as a file of plain manifests; the default namespace is
    the object's own.
    """
    named = {_as_yaml(path): str(path) for path in holder.files}
    snapshot = SourceTree(None, {_as_yaml(path): data for path, data in holder.files.items()})
    prepared = prepare.prepare(snapshot, namespace=holder.namespace, advice=False)
    broken = tuple(
        _placed(finding, named, secret=holder.secret)
        for finding in prepared.findings
        if finding.refused
    )
    unread = tuple(
        Skipped(SkipReason.NO_TEXT, f"{holder.source}/{key} is omitted: templates must be text")
        for key in holder.unread
        if key.endswith(_SUFFIXES)
    )
    if broken:
        return RenderedTemplates({}, unread, broken)
    outside = {key for key in prepared.bundle.manifests if not _may_name(key, holder, chosen)}
    manifests = {
        key: _held_by(manifest, holder, named)
        for key, manifest in prepared.bundle.manifests.items()
        if key not in outside
    }
    return RenderedTemplates(
        manifests, (*unread, *(_outside(key, holder) for key in sorted(outside)))
    )


def _as_yaml(path: PurePosixPath) -> PurePosixPath:
    """The path with a suffix of manifests: a key may have any name."""
    return path if path.name.endswith(_SUFFIXES) else path.with_name(f"{path.name}.yaml")


def _held_by(
    manifest: Manifest, holder: TemplateObject, named: Mapping[PurePosixPath, str]
) -> Manifest:
    base = manifest.origin.base
    file = named.get(PurePosixPath(base.file), base.file)
    words = f"{holder.kind} {holder.namespace}/{holder.name}, key {PurePosixPath(file).name}"
    origin = replace(manifest.origin, base=replace(base, file=file))
    return replace(manifest, origin=origin, holder=ManifestOrigin(holder.commit, holder.uid, words))


def _may_name(key: Key, holder: TemplateObject, chosen: TemplateSelector) -> bool:
    return chosen.anywhere or holder.namespace in (chosen.home, key.namespace)


def _outside(key: Key, holder: TemplateObject) -> Skipped:
    what = (
        f"{holder.source} may define only objects of its own namespace (templates.anywhere permits "
        "others)"
    )
    return Skipped(SkipReason.NOT_ALLOWED, f"{key} is not allowed: {what}", key)


def _placed(finding: Finding, named: Mapping[PurePosixPath, str], *, secret: bool) -> Finding:
    """The finding at its key; for a Secret only the rule and the place, because a message may quote
    a value.
    """
    place = finding.place
    if place is not None:
        place = replace(place, file=named.get(PurePosixPath(place.file), place.file))
    if secret:
        message = "the details are hidden because the template is a Secret; see the rule's page"
        return Finding(
            finding.rule, finding.severity, message, place, refused=True, object=finding.object
        )
    return replace(finding, place=place)
