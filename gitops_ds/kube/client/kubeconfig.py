"""A program that reads a kubeconfig or a pod's service account with the official package.

That package, with all that it imports, takes 20 MiB, which a service would keep indefinitely only
to read a file. So this module runs as a separate process (started by `config.access`). It imports
nothing of gitops-ds and prints one JSON object: {"found": the fields of KubeconfigEntry},
{"context": the name of the current context} or {"problem": the rest of a sentence that begins with
the kubeconfig's name}. Its standard output is the pipe to the parent: secrets leave the process
only through it. Exec plugins can prompt on the terminal: stdin and stderr are inherited.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
import os
import select
import signal
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """One cluster and one user.

    `header` is the Authorization header, `expires` its or the certificate's end in seconds since
    1970; `token_file` is the file of a token that may change; `renewable`: another request may
    return other credentials. `authority`, `certificate` and `key` are PEM texts.
    """

    host: str
    header: str | None = field(default=None, repr=False)
    expires: float | None = None
    renewable: bool = False
    token_file: str | None = None
    authority: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None


class Errors(logging.Handler):
    """The errors that the package logs instead of raising them, such as the failure of an exec
    plugin.
    """

    def __init__(self) -> None:
        """Without any message."""
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the message."""
        self.lines.append(record.getMessage())


def of_file(files: str, context: str | None) -> KubeconfigEntry:
    """The entry that kubectl would use from these files (a list as in KUBECONFIG), including the
    credentials of exec plugins and identity providers.
    """
    from kubernetes.client import Configuration
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    configuration = Configuration()
    merged = KubeConfigMerger(files).config  # type: ignore[no-untyped-call]
    _check_context(merged, context)
    with _directory() as directory:
        loader = KubeConfigLoader(merged, context, config_base_path=None, temp_file_path=directory)  # type: ignore[no-untyped-call]
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        user = _user(merged, context or loader.current_context["name"])
        expires = getattr(loader, "expiry", None)
        return _found(
            configuration,
            expires=expires.timestamp() if expires else None,
            renewable="token" not in user
            and "tokenFile" not in user
            and ("exec" in user or "auth-provider" in user),
            token_file=_token_file(user),
        )


class UnknownContext(Exception):
    """No context of the kubeconfig has the name; the text is the rest of a sentence."""


def _check_context(merged: Any, context: str | None) -> None:
    """Raises UnknownContext, with the existing names, for an unknown context."""
    name = context or str(merged.safe_get("current-context") or "")
    contexts = _plain(merged.value.get("contexts"))
    entries = map(_plain, contexts if isinstance(contexts, list) else [])
    names = [str(entry.get("name")) for entry in entries if isinstance(entry, dict)]
    if not name or not names or name in names:
        return
    near = difflib.get_close_matches(name, names, 1)
    hint = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(sorted(names))}"
    what = "no such context" if context else f"the current context {name} does not exist"
    raise UnknownContext(f": {what}; {hint}")


def _plain(node: Any) -> Any:
    """The value of a node of the package, which a merged list contains."""
    return getattr(node, "value", node)


def current_context(files: str) -> str:
    """The name of the current context, empty for none; no credentials are read."""
    from kubernetes.config.kube_config import KubeConfigMerger

    return str(KubeConfigMerger(files).config.safe_get("current-context") or "")  # type: ignore[no-untyped-call]


def _user(merged: Any, context: str) -> Any:
    """The user of the context as the package's node, which contains the path of its file; empty
    without a user.
    """
    name = merged["contexts"].get_with_name(context)["context"].safe_get("user")
    settings = (
        merged["users"].get_with_name(name, safe=True)
        if name and merged.safe_get("users")
        else None
    )
    return settings["user"] if settings else {}


def _token_file(user: Any) -> str | None:
    if "token" in user or "tokenFile" not in user:
        return None
    return str(Path(user.path).absolute().parent / user["tokenFile"])


def of_pod(account: Path) -> KubeconfigEntry:
    """The entry of the service account of this pod; `account` is the directory that the kubelet
    fills.
    """
    from kubernetes.client import Configuration
    from kubernetes.config.incluster_config import InClusterConfigLoader

    configuration = Configuration()
    token = str(account / "token")
    InClusterConfigLoader(token, str(account / "ca.crt")).load_and_set(configuration)  # type: ignore[no-untyped-call]
    return _found(configuration, token_file=token)


def _found(configuration: Any, **credentials: Any) -> KubeconfigEntry:
    header = configuration.get_api_key_with_prefix("BearerToken")
    secure = configuration.host.startswith("https")
    return KubeconfigEntry(
        host=configuration.host.rstrip("/"),
        header=header.strip() if header else None,
        authority=_text(configuration.ssl_ca_cert) if secure else None,
        certificate=_text(configuration.cert_file) if secure else None,
        key=_text(configuration.key_file) if secure else None,
        verify=bool(configuration.verify_ssl),
        server_name=configuration.tls_server_name,
        proxy=_proxy(configuration),
        **credentials,
    )


def _text(file: str | None) -> str | None:
    """A PEM file without characters in its comments that OpenSSL would reject."""
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="ascii", errors="ignore")
    except OSError as error:
        raise CertificateError(str(error)) from error


class CertificateError(Exception):
    """A certificate or key can't be read."""


def _proxy(configuration: Any) -> str | None:
    """The kubeconfig's proxy, else that of the environment unless NO_PROXY has this host."""
    proxy: str | None = configuration.proxy
    host = urllib.parse.urlsplit(configuration.host).hostname or ""
    if proxy in urllib.request.getproxies().values() and urllib.request.proxy_bypass(host):
        return None
    return proxy


@contextlib.contextmanager
def _directory() -> Iterator[str]:
    """A private directory for the package, which writes embedded keys into files: in memory if the
    system has such a directory.
    """
    memory = "/dev/shm"  # noqa: S108  the directory inside is private
    with tempfile.TemporaryDirectory(
        dir=memory if os.access(memory, os.W_OK) else None
    ) as directory:
        yield directory


def _answer(arguments: list[str], failed: Errors) -> dict[str, Any]:
    try:
        from kubernetes.config.config_exception import ConfigException
    except ImportError as error:
        advice = "install gitops-ds again, with its requirements"
        return {"problem": f" can't be read: {_one_line(error)}; {advice}"}
    try:
        match arguments:
            case ["pod", account]:
                entry = of_pod(Path(account))
            case ["current-context", files]:
                return {"context": current_context(files)}
            case ["file", files, *context]:
                entry = of_file(files, context[0] if context else None)
            case _:
                raise AssertionError
    except UnknownContext as error:
        return {"problem": str(error)}
    except ConfigException as error:
        return {"problem": f": {_one_line(error)}; `kubectl config view` shows its content"}
    except CertificateError as error:
        return {"problem": f": its certificates can't be read: {_one_line(error)}"}
    except Exception as error:  # the YAML errors of the package's own reader have no common type
        return {"problem": f" is not a valid kubeconfig: {_one_line(error)}"}
    if failed.lines and entry.header is None and entry.certificate is None:
        # On a terminal the plugin has printed its own message, which the package does not have.
        why = "see above" if "NoneType" in failed.lines[0] else _one_line(failed.lines[0])
        return {"problem": f": its exec plugin returned no credentials: {why}"}
    return {"found": asdict(entry)}


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _end_with_reader(answer: TextIO) -> None:
    """Ends this process, files removed, when its reader closes the pipe: an exec plugin may block
    indefinitely.
    """
    poll = select.poll()
    poll.register(answer, 0)  # POLLERR of a pipe without readers needs no event mask

    def wait() -> None:
        poll.poll()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: list[str]) -> None:
    """Prints the result; the exit code is 0 for a problem too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    # Other output must not be part of the result. The package lets a plugin prompt when its own
    # standard output is a terminal.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2 if os.isatty(0) else os.open(os.devnull, os.O_WRONLY), 1)
    _end_with_reader(answer)
    failed = Errors()
    logging.basicConfig(handlers=[failed], force=True)
    json.dump(_answer(arguments, failed), answer)
    answer.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the import prints no traceback
    main(sys.argv[1:])
