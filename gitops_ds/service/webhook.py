"""The webhook of a service, from the settings: its repositories and the files of its secrets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gitops_ds.errors import SettingsError
from gitops_ds.model.events.base import Emit
from gitops_ds.settings.service import Service
from gitops_ds.web import webhooks
from gitops_ds.web.webhooks import WebhookTarget

if TYPE_CHECKING:
    from aiohttp import web

    from gitops_ds.service.git.git_deployer import GitDeployer


class SecretFile:
    """The lines of a file, read again when it changes; none while it cannot be read."""

    def __init__(self, setting: str, file: str) -> None:
        """`setting` is the file's key. Raises SettingsError for a file without a secret."""
        self._file = Path(file)
        self._seen: tuple[int, int, int] | None
        try:
            self._seen, self._lines = self._mark(), self._read()
        except OSError as error:
            raise SettingsError(f"{setting}: {file}: {error.strerror}") from None
        if not self._lines:
            raise SettingsError(f"{setting}: {file}: empty; a line with a secret is expected")

    def __call__(self) -> Sequence[bytes]:
        """The current secrets."""
        try:
            if (mark := self._mark()) != self._seen:
                self._lines, self._seen = self._read(), mark
        except OSError:
            self._lines, self._seen = (), None
        return self._lines

    def _mark(self) -> tuple[int, int, int]:
        stat = self._file.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> tuple[bytes, ...]:
        return tuple(line.strip() for line in self._file.read_bytes().splitlines() if line.strip())


def routes(service: Service, deployers: Iterable[GitDeployer], emit: Emit) -> list[web.RouteDef]:
    """The webhook's routes; none without a secret. Raises SettingsError for a secret that cannot be
    read.
    """
    settings, deployers = service.listen.webhook, tuple(deployers)
    common = (
        SecretFile("listen.webhook.secretFile", settings.secret_file)
        if settings.secret_file
        else None
    )
    own = {
        deployer: SecretFile("repository.webhook.secretFile", deployer.settings.webhook.secret_file)
        for deployer in deployers
        if deployer.settings.webhook.secret_file
    }
    if common is None and not own:
        return []

    def secrets_of(deployer: GitDeployer) -> Callable[[], Sequence[bytes]]:
        files = [file for file in (own.get(deployer), common) if file is not None]
        return lambda: [secret for file in files for secret in file()]

    secrets = {deployer: secrets_of(deployer) for deployer in deployers}

    def targets() -> list[WebhookTarget]:
        return [
            WebhookTarget(one.id, one.addresses, one.settings.branch, secrets[one], one.wake)
            for one in deployers
            if one.loop is not None
        ]

    hooks = webhooks.Hooks(targets, emit, time.time, max_bytes=settings.max_bytes)
    return hooks.routes(settings.path)
