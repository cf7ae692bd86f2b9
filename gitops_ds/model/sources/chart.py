"""A Helm chart in a source.yaml, and its rendered manifests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.model.finding import Finding
from gitops_ds.model.objects import Path
from gitops_ds.model.sources.bundle import Pointer


class Remote(msgspec.Struct, frozen=True):
    """A chart in a repository of charts.

    `address` is `oci://HOST/PATH` (with the chart's name as its end) or the URL of a directory with
    an index.yaml, where `name` is the chart's. `digest` is `sha256:…` or empty: of the manifest for
    OCI, else of the archive.
    """

    address: str
    name: str
    version: str
    digest: str = ""


class Chart(msgspec.Struct, frozen=True):
    """The `helm:` part of a source.yaml.

    `where` is a directory or an archive of the snapshot, or a remote chart. `values` take
    precedence over those of `values_files`, of which the last takes precedence. For empty strings
    helm uses its defaults. A chart with a blocking finding must not be rendered.
    """

    file: PurePosixPath
    where: PurePosixPath | Remote
    release: str
    namespace: str = ""
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)
    values_files: tuple[PurePosixPath, ...] = ()
    kube_version: str = ""
    api_versions: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


# The sources of the values of a document, by path: the pointer of `()` is that of the object. A
# path without a pointer has that of its nearest parent.
Places = Mapping[Path, tuple[Pointer, ...]]


class RenderedChart(msgspec.Struct, frozen=True):
    """The output of helm, and the sources of the values of each document, by its number."""

    data: bytes
    places: Mapping[int, Places]
