"""The address and credentials of an API server: the official package's configuration for aiohttp.

kubeconfig files, exec plugins, in-cluster tokens and client certificates are read by the
`kubernetes` package, in a short-lived process (`kubeconfig`); static credentials without it
(`static_kubeconfig`). This module adds the renewal of tokens: one caller at a time requests a new
token, only if the credentials can be renewed, and a token in a file is read without that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gitops_ds.core import errors
from gitops_ds.core.values import replace
from gitops_ds.kube.client import kubeconfig as reader
from gitops_ds.kube.client import static_kubeconfig
from gitops_ds.kube.client.kubeconfig import KubeconfigEntry

TOKEN_KEPT_SECONDS = 10.0
RENEWED_SECONDS_BEFORE_END = 20.0
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(slots=True)
class ClientConfig:
    """A server's address, its TLS context (None over plain http), the proxy, and the Authorization
    header.

    `who` names the credentials in messages: "context prod of /home/me/.kube/config".
    """

    who: str
    tls: ssl.SSLContext | None
    _found: KubeconfigEntry
    _ask: Callable[[], KubeconfigEntry]
    _clock: Callable[[], float] = time.time
    _asked_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def url(self) -> str:
        """The server's address, without a slash at its end."""
        return self._found.host

    @property
    def proxy(self) -> str | None:
        """The address of the proxy to the server."""
        return self._found.proxy

    @property
    def server_name(self) -> str | None:
        """The name in the server's certificate, if it differs from the address."""
        return self._found.server_name

    async def authorization(self, *, refuse: str | None = None) -> str | None:
        """The Authorization header. `refuse`: a header that the server rejected; it is renewed
        unless another request renewed it already.

        Raises ClusterError when new credentials are required and not available.
        """
        async with self._lock:
            if self._is_due(refuse):
                self._asked_at = self._clock()
                await asyncio.to_thread(self._renew)
            return self._found.header

    def _is_due(self, refused: str | None) -> bool:
        now, entry = self._clock(), self._found
        if 0 <= now - self._asked_at < TOKEN_KEPT_SECONDS:
            return False
        if entry.token_file:
            return True
        ends = entry.expires is not None and now > entry.expires - RENEWED_SECONDS_BEFORE_END
        return entry.renewable and (ends or (refused is not None and refused == entry.header))

    def _renew(self) -> None:
        if self._found.token_file:
            # it is being replaced: the present token may still be valid
            with contextlib.suppress(OSError, ValueError):
                if token := Path(self._found.token_file).read_text().strip():
                    self._found = replace(self._found, header=f"Bearer {token}")
            return
        try:
            entry = self._ask()
        except errors.ClusterError:
            if self._found.expires and self._clock() < self._found.expires:
                return
            raise
        if self.tls:
            _identify(self.tls, entry, self.who)
        self._found = entry


def access(kubeconfig: str | None, context: str | None, account: Path = ACCOUNT) -> ClientConfig:
    """The configuration in kubectl's order: the named file, KUBECONFIG, the pod's service account,
    ~/.kube/config.

    Raises ClusterError for a missing or invalid file, an unknown context, an unreadable
    certificate.
    """
    file = _file(kubeconfig, account)
    if file is None:
        who, arguments = "the pod's service account", ["pod", str(account)]
    else:
        who = f"context {context} of {file}" if context else file
        arguments = ["file", file, *([] if context is None else [context])]
    ask = functools.partial(_read_entry, who, arguments)
    entry = (static_kubeconfig.entry(file, context) if file else None) or ask()
    return ClientConfig(who, _tls(entry, who), entry, ask)


def current_context(kubeconfig: str | None, account: Path = ACCOUNT) -> str | None:
    """The current context of the kubeconfig that `access` uses, empty for none; None for the pod's
    service account.
    """
    file = _file(kubeconfig, account)
    if file is None:
        return None
    static = static_kubeconfig.current_context(file)
    return static or str(_answer(file, ["current-context", file])["context"])


def _file(kubeconfig: str | None, account: Path) -> str | None:
    file = kubeconfig or os.environ.get("KUBECONFIG")
    if not file and (account / "token").exists():
        return None
    file = file or "~/.kube/config"
    _must_exist(file)
    return file


def command(arguments: list[str]) -> list[str]:
    """The command line of the reader. Every user of the machine can read it, so it contains names
    of files and contexts, never a secret.

    The program is started by its path, so it is independent of how this package was installed; -P
    excludes the modules of the working directory, which may be an untrusted repository.
    """
    return [sys.executable, "-P", reader.__file__, *arguments]


def _read_entry(who: str, arguments: list[str]) -> KubeconfigEntry:
    return KubeconfigEntry(**_answer(who, arguments)["found"])


def _answer(who: str, arguments: list[str]) -> dict[str, Any]:
    try:
        ended = subprocess.run(command(arguments), stdout=subprocess.PIPE, check=False)  # noqa: S603  our own program
        answer = json.loads(ended.stdout)
    except OSError as error:
        raise errors.ClusterError(
            f"{who} can't be read: no process for it can be started: {_one_line(error)}"
        ) from error
    except ValueError as error:
        raise errors.ClusterError(
            f"{who} can't be read: its process ended without a result"
        ) from error
    if "problem" in answer:
        raise errors.ClusterError(f"{who}{answer['problem']}")
    return dict(answer)


def _must_exist(files: str) -> None:
    if not any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file):
        raise errors.NoKubeconfig(
            f"no kubeconfig at {files}: name one with --kubeconfig, or set KUBECONFIG"
        )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _tls(entry: KubeconfigEntry, who: str) -> ssl.SSLContext | None:
    if not entry.host.startswith("https"):
        return None
    # an empty string would make Python trust the system's authorities
    if entry.authority is not None and not entry.authority.strip():
        raise errors.ClusterError(
            f"{who}: its certificates can't be read: the file of the certificate authority is empty"
        )
    try:
        tls = ssl.create_default_context(cadata=entry.authority)
    except (OSError, ValueError) as error:
        raise errors.ClusterError(
            f"{who}: its certificates can't be read: {_one_line(error)}"
        ) from error
    _identify(tls, entry, who)
    if not entry.verify:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    # API servers' own certificate authorities often lack a key identifier, which Python 3.13
    # requires and Go doesn't.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def _identify(tls: ssl.SSLContext, entry: KubeconfigEntry, who: str) -> None:
    """Uses this client certificate from the next connection on."""
    if entry.certificate is None:
        return
    try:
        with (
            _as_file(entry.certificate) as certificate,
            _as_file(entry.key or entry.certificate) as key,
        ):
            tls.load_cert_chain(certificate, key)
    except OSError as error:
        raise errors.ClusterError(
            f"{who}: its certificates can't be read: {_one_line(error)}"
        ) from error


@contextlib.contextmanager
def _as_file(secret: str) -> Iterator[str]:
    """A file with the secret, because OpenSSL reads keys from files: in memory, or on systems
    without memfd_create a private temporary file.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pem"), "w") as file:
            file.write(secret)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w") as named:
            named.write(secret)
            named.flush()
            yield named.name
