"""The objects of a file, with lists expanded, and the findings for documents that are not
objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

import msgspec
import orjson

from gitops_ds.core import progress
from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.objects import Digest, Path, digest_of, kept_text
from gitops_ds.core.sources.bundle import Pointer
from gitops_ds.core.sources.source_tree import NO_RESULTS, CachedResults, Places
from gitops_ds.core.values import replace
from gitops_ds.source.rules import MISSING_FIELD, NO_KIND, NOT_RENDERED
from gitops_ds.yaml import parser
from gitops_ds.yaml.documents import Document
from gitops_ds.yaml.provenance.lookup import KUSTOMIZATION

# The place of a pointer in the files of a snapshot.
PlaceOf = Callable[[Pointer], Place]


class ParsedObject(msgspec.Struct, frozen=True):
    """An object before its namespace, labels and digest are set. `literal`: `${x}` in it is not a
    reference.

    `digest` is that of the body, if already computed.
    """

    body: dict[str, Any]
    base: Pointer
    set_by: Mapping[Path, tuple[Pointer, ...]] = msgspec.field(default_factory=dict)
    agent: str = ""
    variant: str = ""
    depends_on: tuple[str, ...] = ()
    literal: bool = False
    digest: Digest | None = None


class Objects(msgspec.Struct, frozen=True):
    """The objects and findings of a file. A file without both has nothing for a cluster.

    `remembered`: from the cache of an earlier run.
    """

    drafts: tuple[ParsedObject, ...] = ()
    findings: tuple[Finding, ...] = ()
    remembered: bool = False


def read(file: str, data: bytes, cached: CachedResults = NO_RESULTS) -> Objects:
    """The objects of one file.

    In a file with objects, each other document is a finding: kubectl would stop there.
    """
    written = cached.files.get(hashlib.sha256(data).hexdigest()) if cached.files else None
    return _read(file, data) if written is None else _remembered(file, written)


@lru_cache(2048)  # most files are the same in all commits of a repository
def _read(file: str, data: bytes) -> Objects:
    progress.at(file)
    parsed = parser.read(file, data)
    drafts: list[ParsedObject] = []
    odd: list[Document] = []
    findings = list(parsed.findings)
    for document in parsed.documents:
        if document.value is None:
            continue
        if is_sops(document.value):
            findings.append(_sops(parser.place(file, data, document.index, ("sops",), key=True)))
        elif is_object(document.value):
            for opened in _opened(document.value, Pointer(file, document.index, ())):
                if isinstance(opened, ParsedObject):
                    drafts.append(opened)
                else:
                    message = "this list entry is not an object; apiVersion and kind are required"
                    findings.append(
                        MISSING_FIELD.refusal(
                            message, parser.place(file, data, opened.document, opened.path)
                        )
                    )
        else:
            odd.append(document)
    unexpected = odd if drafts else [document for document in odd if _nearly(document.value)]
    findings.extend(
        _odd(document.value, parser.place(file, data, document.index, ()))
        for document in unexpected
    )
    fragments = () if drafts else [document for document in odd if _is_fragment(document.value)]
    findings.extend(
        _fragment(document.value, parser.place(file, data, document.index, ()))
        for document in fragments
    )
    return Objects(tuple(drafts), tuple(findings))


def is_news(objects: Objects) -> bool:
    """Whether the objects may be cached and are not yet.

    A file with findings is parsed again for their places; one with secrets must not be copied to
    the cache.
    """
    return not (
        objects.remembered
        or objects.findings
        or any(draft.body["kind"] == "Secret" for draft in objects.drafts)
    )


def remember(objects: Objects) -> bytes | None:
    """The line of a file in `CachedResults.files`; None if its values change in JSON."""
    try:
        rows = [
            [draft.base.document, list(draft.base.path), digest_of(draft.body), draft.body]
            for draft in objects.drafts
        ]
        written = kept_text(orjson.dumps(rows))
        return written if orjson.loads(written) == rows else None
    except orjson.JSONEncodeError:
        return None


def _remembered(file: str, written: bytes) -> Objects:
    rows: Iterable[tuple[int, list[str | int], Digest, dict[str, Any]]] = orjson.loads(written)
    drafts = (
        ParsedObject(body, Pointer(file, document, tuple(path)), digest=digest)
        for document, path, digest, body in rows
    )
    return Objects(tuple(drafts), remembered=True)


def expanded(folder: PurePosixPath, data: bytes, placed: Mapping[int, Places]) -> Objects:
    """The output of kustomize for a folder, with the known places of its values."""
    objects = read(str(folder / KUSTOMIZATION), data)
    return replace(
        objects,
        drafts=tuple(
            replace(draft, set_by={} if draft.base.path else placed.get(draft.base.document, {}))
            for draft in objects.drafts
        ),
    )


def is_object(value: Any) -> bool:
    """Whether a document is a Kubernetes object. A kustomization is not one: no API server accepts
    it.
    """
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("apiVersion"), str)
        and isinstance(value.get("kind"), str)
        and not value["apiVersion"].startswith("kustomize.config.k8s.io/")
    )


def is_sops(value: Any) -> bool:
    """Whether SOPS encrypted the document: https://github.com/getsops/sops writes its metadata
    under `sops`, with a `mac`.
    """
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("sops"), Mapping)
        and "mac" in value["sops"]
    )


def _opened(value: dict[str, Any], pointer: Pointer) -> Iterator[ParsedObject | Pointer]:
    """The object itself, or the items of a list, in which apiVersion and kind may be implied by the
    list's kind (kubectl's typed lists). Null items are none, as a generator without objects writes.

    For an item that is not an object, its pointer.
    """
    items = value.get("items")
    is_list = value["kind"].endswith("List") and "items" in value
    if not (is_list and isinstance(items, list | None)):
        yield ParsedObject(value, pointer)
        return
    kind = value["kind"].removesuffix("List")
    type_meta = {"apiVersion": value["apiVersion"], "kind": kind} if kind else {}
    for index, item in enumerate(items or ()):
        at = Pointer(pointer.file, pointer.document, (*pointer.path, "items", index))
        own = {**type_meta, **item} if isinstance(item, Mapping) else None
        if own is not None and is_object(own):
            yield from _opened(own, at)
        else:
            yield at


def _nearly(value: Any) -> bool:
    """Whether the document is probably an object: it has metadata and one of apiVersion and
    kind, or is a sequence with an object.
    """
    if isinstance(value, list):
        return any(
            is_object(element) and isinstance(element.get("metadata"), Mapping) for element in value
        )
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("metadata"), Mapping)
        and ("kind" in value) != ("apiVersion" in value)
    )


# Fields of the spec of a DaemonSet or pod, and of affinity, which files of other programs do not
# start with.
_OF_A_WORKLOAD = frozenset(
    (
        "affinity",
        "containers",
        "initContainers",
        "minReadySeconds",
        "nodeAffinity",
        "nodeSelector",
        "podAffinity",
        "podAntiAffinity",
        "priorityClassName",
        "revisionHistoryLimit",
        "selector",
        "serviceAccountName",
        "template",
        "tolerations",
        "updateStrategy",
    )
)
_OF_AN_OBJECT = frozenset(
    ("metadata", "spec", "status", "data", "stringData", "binaryData", "rules")
)
_BESIDE = frozenset(
    (
        "metadata",
        "volumes",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "terminationGracePeriodSeconds",
        "dnsPolicy",
    )
)


def _is_fragment(value: Any) -> bool:
    """Whether a document is a part of an object: it has only fields of a workload or of a named
    object.
    """
    if not isinstance(value, Mapping) or not value:
        return False
    spec, metadata = value.get("spec"), value.get("metadata")
    if (
        isinstance(metadata, Mapping)
        and isinstance(metadata.get("name"), str)
        and len(value) > 1
        and value.keys() <= _OF_AN_OBJECT
    ):
        return True
    if isinstance(spec, Mapping):
        return not _OF_A_WORKLOAD.isdisjoint(spec) and value.keys() <= {
            "metadata",
            "spec",
            "status",
        }
    # Many programs use `template` and `selector`.
    return (
        not (_OF_A_WORKLOAD - {"template", "selector"}).isdisjoint(value)
        and value.keys() <= _OF_A_WORKLOAD | _BESIDE
    )


def _fragment(value: Any, place: Place) -> Finding:
    fields = ", ".join(map(str, list(value)[:3]))
    advice = "complete it, or exclude the file with .gitopsdsignore"
    message = (
        f"this is a fragment of an object ({fields}) without apiVersion and kind, "
        "and is not applied: "
        f"{advice}"
    )
    return NO_KIND.finding(message, place)


def _odd(value: Any, place: Place) -> Finding:
    if isinstance(value, list):
        advice = "write them as documents separated by ---, or as the items of a `kind: List`"
        return MISSING_FIELD.refusal(
            f"this document is a list, and no object of it is read; {advice}", place
        )
    missing = [
        key
        for key in ("apiVersion", "kind")
        if not (isinstance(value, Mapping) and isinstance(value.get(key), str))
    ]
    advice = "add it, or move content that is not for Kubernetes to another file"
    return MISSING_FIELD.refusal(
        f"this document has no {' and no '.join(missing)}; {advice}", place
    )


def _sops(place: Place) -> Finding:
    advice = (
        "decrypt it outside of Git, keep the values in an external secret store, or exclude the "
        "file with .gitopsdsignore"
    )
    return NOT_RENDERED.refusal(
        f"this file is encrypted by SOPS, and gitops-ds has no keys: {advice}", place
    )
