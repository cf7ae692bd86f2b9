"""One ConfigMap or Secret with templates: its keys as files, and what they say, rendered and
checked as files of Git are. Pure.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from gitops_ds.model import names
from gitops_ds.model.bundle import Manifest, ManifestOrigin
from gitops_ds.model.finding import Finding
from gitops_ds.model.objects import CONFIG_MAP, SECRET, Body, CommitId, Key, Resource
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.model.skipped import Skipped
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.pipeline import prepare

OWNER = "templates-in-cluster"
_SUFFIXES = (".yaml", ".yml", ".json")
# A key of any name holds a template when a line of its text begins an object as YAML or JSON writes
# it. Blanks of one line alone: over the ends of lines each line would look at all that follow, in
# the event loop.
_OBJECT = re.compile(rb"""(?:^|[{,])[ \t-]*["']?apiVersion["']?\s*:""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TemplateSelector:
    """Which objects hold templates: labels in selector syntax, namespaces (`*`: all), kinds.

    Those in `home`, the namespace of the service itself, may name any object; others only what is
    in their own namespace, unless `anywhere`. `cluster` is the name of the cluster, perhaps empty.
    """

    selector: str = f"{names.TEMPLATE}=true"
    namespaces: tuple[str, ...] = ()
    kinds: tuple[Resource, ...] = (CONFIG_MAP, SECRET)
    anywhere: bool = False
    home: str = "gitops-ds"
    cluster: str = ""

    @property
    def owner(self) -> str:
        """The id under which what is made of them is owned."""
        return f"{OWNER}.{self.cluster}" if self.cluster else OWNER


@dataclass(frozen=True, slots=True, eq=False)
class TemplateObject:
    """An object with templates, as it was at one version. `unread` are the keys that are no text."""

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
        """What it is called: `configmap/NAMESPACE/NAME`; a file is that and its key."""
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"

    @property
    def commit(self) -> CommitId:
        """What stands where a commit stands."""
        return CommitId(f"{self.source}@{self.version}")

    @property
    def secret(self) -> bool:
        """Whether nobody may be told what it says."""
        return self.kind == SECRET.kind


@dataclass(frozen=True, slots=True)
class RenderedTemplates:
    """What an object says, and what of it is left out: all, when something is `broken`. `keeps`:
    nothing it made is deleted.
    """

    manifests: Mapping[Key, Manifest]
    refusals: tuple[Skipped, ...] = ()
    broken: tuple[Finding, ...] = ()

    @property
    def keeps(self) -> bool:
        """An object that is not taken as a whole may still mean what it made before."""
        return bool(self.broken or any(refusal.key for refusal in self.refusals))


def read(body: Body) -> TemplateObject:
    """The object with its texts; a Secret's are decoded. Keys that are no manifests by name or look
    are left out.
    """
    metadata, kind = body["metadata"], str(body.get("kind"))
    source = PurePosixPath(kind.lower(), metadata["namespace"], metadata["name"])
    files, unread = {}, list(body.get("binaryData") or ())
    for key, text in (body.get("data") or {}).items():
        data = _decoded(text) if kind == SECRET.kind else str(text).encode()
        if data is None:
            unread.append(key)
        elif key.endswith(_SUFFIXES) or _OBJECT.search(data):
            files[source / key] = data
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
    """None for what is no text."""
    try:
        data = base64.b64decode(text)
        data.decode()
    except (binascii.Error, ValueError):
        return None
    return data


def render(held: TemplateObject, chosen: TemplateSelector) -> RenderedTemplates:
    """What the object's keys say, each as a file of plain manifests; of what names no namespace, in
    the object's own.
    """
    named = {_as_yaml(path): str(path) for path in held.files}
    snapshot = Snapshot(None, {_as_yaml(path): data for path, data in held.files.items()})
    prepared = prepare.prepare(snapshot, namespace=held.namespace, advice=False)
    broken = tuple(
        _placed(finding, named, secret=held.secret)
        for finding in prepared.findings
        if finding.refused
    )
    unread = tuple(
        Skipped(SkipReason.NO_TEXT, f"{held.source}/{key} is left out: templates are text")
        for key in held.unread
        if key.endswith(_SUFFIXES)
    )
    if broken:
        return RenderedTemplates({}, unread, broken)
    outside = {key for key in prepared.bundle.manifests if not _may_name(key, held, chosen)}
    manifests = {
        key: _held_by(manifest, held, named)
        for key, manifest in prepared.bundle.manifests.items()
        if key not in outside
    }
    return RenderedTemplates(
        manifests, (*unread, *(_outside(key, held) for key in sorted(outside)))
    )


def _as_yaml(path: PurePosixPath) -> PurePosixPath:
    """A key may be called anything; a file that is read as a manifest may not."""
    return path if path.name.endswith(_SUFFIXES) else path.with_name(f"{path.name}.yaml")


def _held_by(
    manifest: Manifest, held: TemplateObject, named: Mapping[PurePosixPath, str]
) -> Manifest:
    base = manifest.origin.base
    file = named.get(PurePosixPath(base.file), base.file)
    words = f"{held.kind} {held.namespace}/{held.name}, key {PurePosixPath(file).name}"
    origin = replace(manifest.origin, base=replace(base, file=file))
    return replace(manifest, origin=origin, holder=ManifestOrigin(held.commit, held.uid, words))


def _may_name(key: Key, held: TemplateObject, chosen: TemplateSelector) -> bool:
    return chosen.anywhere or held.namespace in (chosen.home, key.namespace)


def _outside(key: Key, held: TemplateObject) -> Skipped:
    what = (
        f"{held.source} may name only objects of its own namespace (templates.anywhere permits "
        "others)"
    )
    return Skipped(SkipReason.NOT_ALLOWED, f"{key} is not allowed: {what}", key)


def _placed(finding: Finding, named: Mapping[PurePosixPath, str], *, secret: bool) -> Finding:
    """The finding at its key; of what a Secret holds only the rule and the place are told, for a
    message may quote a value.
    """
    place = finding.place
    if place is not None:
        place = replace(place, file=named.get(PurePosixPath(place.file), place.file))
    if secret:
        message = "what is wrong is not told, for a Secret holds it; the rule's page says what it looks at"
        return Finding(
            finding.rule, finding.severity, message, place, refused=True, object=finding.object
        )
    return replace(finding, place=place)
