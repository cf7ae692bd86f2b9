"""Who we are to an API server, and over which wire: the official package's configuration, made ready for aiohttp.

kubeconfig files, exec plugins, in-cluster tokens and client certificates are read by the `kubernetes` package. What it lacks is
here: its hook for a fresh token has no lock and asks a plugin again for every request when tokens are short-lived, so one caller at
a time asks, in a thread, and the answer is kept for some seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gitops_ds import errors

TOKEN_KEPT_SECONDS = 10.0
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(slots=True)
class Access:
    """A server's address, its TLS context (None over plain http), the proxy, and the header that says who we are.

    `who` names the credentials in messages: "context prod of /home/me/.kube/config".
    """

    url: str
    who: str
    tls: ssl.SSLContext | None
    proxy: str | None
    _configuration: Any
    _header: str | None = None
    _asked_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def authorization(self, *, refuse: str | None = None) -> str | None:
        """The Authorization header. `refuse`: a header that the server did not take, so ask anew unless someone did already."""
        async with self._lock:
            stale = time.monotonic() - self._asked_at > TOKEN_KEPT_SECONDS
            if stale or (refuse is not None and refuse == self._header):
                self._header = await asyncio.to_thread(self._ask)
                self._asked_at = time.monotonic()
            return self._header

    def _ask(self) -> str | None:
        found: str | None = self._configuration.get_api_key_with_prefix("BearerToken", "authorization")
        if found is None and self._configuration.username:
            found = self._configuration.get_basic_auth_token()
        return found


def access(kubeconfig: str | None, context: str | None) -> Access:
    """The access that kubectl would take: the file named, else KUBECONFIG, else the pod's own account, else ~/.kube/config.

    Raises ClusterError with a sentence for a file that is missing or wrong, a context that isn't in it, an unreadable certificate.
    """
    # ~0.2 s: imported only by commands that talk to a cluster.
    from kubernetes import client, config
    from kubernetes.config.config_exception import ConfigException

    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # a failing exec plugin is told by our own error, once
    configuration = client.Configuration()
    in_cluster = not kubeconfig and not os.environ.get("KUBECONFIG") and _SERVICE_ACCOUNT.exists()
    file = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    who = "the pod's service account" if in_cluster else (f"context {context} of {file}" if context else file)
    try:
        if in_cluster:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            _must_exist(file)
            config.load_kube_config(config_file=file, context=context, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
    except errors.ClusterError:
        raise
    except ConfigException as error:
        raise errors.ClusterError(f"{who}: {_one_line(error)}; `kubectl config view` shows what is in it") from error
    except Exception as error:  # the YAML errors of the package's own reader have no common type
        raise errors.ClusterError(f"{who} is no usable kubeconfig: {_one_line(error)}") from error
    return Access(configuration.host.rstrip("/"), who, _tls(configuration, who), configuration.proxy, configuration)


def _must_exist(files: str) -> None:
    if not any(Path(file).expanduser().is_file() for file in files.split(os.pathsep) if file):
        raise errors.ClusterError(f"no kubeconfig at {files}: name one with --kubeconfig, or set KUBECONFIG")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _tls(configuration: Any, who: str) -> ssl.SSLContext | None:
    if not configuration.host.startswith("https"):
        return None
    try:
        authority = getattr(configuration, "ca_cert_data", None)
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=authority)
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise errors.ClusterError(f"{who}: its certificates can't be read: {_one_line(error)}") from error
    if not configuration.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    # API servers' own certificate authorities often lack a key identifier, which Python 3.13 asks for and Go doesn't.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls
