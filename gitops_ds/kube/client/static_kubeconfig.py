"""Reads kubeconfigs with static credentials in this process: a token or a client certificate.

The official package, in a separate process (`kubeconfig`), takes a fifth of a second. It reads all
others: exec plugins, identity providers, passwords, token files, proxies, and each file whose
content is unusual or invalid. So this module reports no errors, and its result equals that of the
package (tests/client/test_static_kubeconfig.py compares them).
"""

from __future__ import annotations

import base64
import binascii
import os
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gitops_ds.kube.client.kubeconfig import KubeconfigEntry
from gitops_ds.yaml import parser

_CLUSTER = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "extensions",
}
_USER = {
    "token",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "extensions",
}


class _Unusual(Exception):
    """The official package must read these files."""


class _Kubeconfig(msgspec.Struct, frozen=True):
    """The content of one kubeconfig, and the directory of its relative paths."""

    directory: Path
    content: Mapping[str, Any]


def entry(files: str, context: str | None) -> KubeconfigEntry | None:
    """The cluster and the user of a context (None: the current one) of these files, a list as in
    KUBECONFIG; None if the official package must read them.
    """
    if urllib.request.getproxies().keys() - {"no"}:
        return None
    try:
        return _entry(list(_read(files)), context)
    except (_Unusual, OSError, binascii.Error):
        return None


def current_context(files: str) -> str | None:
    """The name of the current context; None if the official package must read the files."""
    try:
        return _current(list(_read(files)))
    except (_Unusual, OSError):
        return None


def _read(files: str) -> Iterator[_Kubeconfig]:
    for name in filter(None, files.split(os.pathsep)):
        path = Path(os.path.expanduser(name))  # noqa: PTH111  as the package: no error for ~unknown
        if not path.exists():
            continue
        parsed = parser.read(name, path.read_bytes())
        if parsed.findings or len(parsed.documents) != 1:
            raise _Unusual
        yield _Kubeconfig(path.absolute().parent, _mapping(parsed.documents[0].value))


def _current(files: list[_Kubeconfig]) -> str:
    """The last current context of the files."""
    texts = [file.content["current-context"] for file in files if "current-context" in file.content]
    return _text(texts[-1] if texts else None)


def _entry(files: list[_Kubeconfig], context: str | None) -> KubeconfigEntry:
    chosen, _ = _named(files, "context", context or _current(files))
    cluster, directory = _named(files, "cluster", _text(chosen.get("cluster")))
    user, users_directory = _named(files, "user", _text(chosen.get("user")))
    # the package resolves the paths of a user relative to the file of the cluster
    if not (cluster.keys() <= _CLUSTER and user.keys() <= _USER) or directory != users_directory:
        raise _Unusual
    host = _text(cluster.get("server"))
    skips = cluster.get("insecure-skip-tls-verify", False)
    name = cluster.get("tls-server-name")
    if not isinstance(skips, bool):
        raise _Unusual
    secure = host.startswith("https")
    return KubeconfigEntry(
        host=host.rstrip("/"),
        header=f"Bearer {_text(user['token'])}".strip() if "token" in user else None,
        authority=_pem(cluster, "certificate-authority", directory) if secure else None,
        certificate=_pem(user, "client-certificate", directory) if secure else None,
        key=_pem(user, "client-key", directory) if secure else None,
        verify=not skips,
        server_name=None if name is None else _text(name),
    )


def _named(files: list[_Kubeconfig], kind: str, name: str) -> tuple[Mapping[str, Any], Path]:
    """The first cluster, user or context of this name, and the directory of its file."""
    entries = [
        (named, file.directory)
        for file in files
        for named in _entries(file, f"{kind}s")
        if _text(named.get("name")) == name
    ]
    if not entries:
        raise _Unusual
    first, directory = entries[0]
    return _mapping(first.get(kind)), directory


def _entries(file: _Kubeconfig, key: str) -> list[Mapping[str, Any]]:
    entries = file.content.get(key) or []
    if not isinstance(entries, list):
        raise _Unusual
    return [_mapping(body) for body in entries]


def _pem(values: Mapping[str, Any], key: str, directory: Path) -> str | None:
    """The PEM text of a key with data or with a file, without non-ASCII characters."""
    if f"{key}-data" in values:
        data = base64.standard_b64decode(_text(values[f"{key}-data"]))
    elif key in values:
        file = Path(os.path.normpath(directory / _text(values[key])))  # as the package
        data = file.read_bytes()
    else:
        return None
    return data.decode("ascii", "ignore")


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Unusual
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _Unusual
    return value
