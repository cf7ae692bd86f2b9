"""What the settings of a repository mean: as whom we come, whose signatures count, who signs for us.

Settings name files; they are read anew each time, for a Secret that is mounted changes under its name.
"""

from __future__ import annotations

import os
from pathlib import Path

from gitops_ds import errors
from gitops_ds.app import repositories
from gitops_ds.model.trust import Trust
from gitops_ds.settings.repository import RepositorySettings
from gitops_ds.source import address
from gitops_ds.source.credentials import Credentials, Login, OwnSsh, Password, SshKey


def trust_of(settings: RepositorySettings) -> Trust:
    """Whose signatures count now. Raises SettingsError for a file that can't be read."""
    told = settings.verify
    files = {
        "signers": ("allowedSignersFile", told.allowed_signers_file),
        "revoked": ("revokedKeysFile", told.revoked_keys_file),
        "openpgp": ("gpgKeysFile", told.gpg_keys_file),
    }
    return Trust(told.mode, **{ours: read(f"repository.verify.{name}", file) for ours, (name, file) in files.items() if file})


def credentials_of(settings: RepositorySettings, where: address.Address, at_desk: bool) -> Credentials:
    """Those that the settings name files for; at a desk, without any, the person's own."""
    told = settings.credentials
    if not told and at_desk:
        return repositories.credentials(where)
    login: Login | None = where.login
    if "sshKeyFile" in told:
        login = SshKey(_read(told, "sshKeyFile"), _read(told, "knownHostsFile"))
    elif "tokenFile" in told or "passwordFile" in told:
        secret = _read(told, "tokenFile" if "tokenFile" in told else "passwordFile").decode().strip()
        login = Password(secret, told.get("username") or "git")
    elif where.scheme is address.Scheme.SSH:
        login = OwnSsh() if at_desk else None
    return Credentials(login, _read(told, "caFile") if "caFile" in told else b"")


def _read(told: object, name: str) -> bytes:
    file = told.get(name) if isinstance(told, dict) else None
    if not file:
        raise errors.SettingsError(f"repository.credentials.{name} is missing: it names a file")
    return read(f"repository.credentials.{name}", file)


def read(name: str, file: str) -> bytes:
    """What is in a file that a setting names. Raises SettingsError."""
    try:
        return Path(os.path.expandvars(file)).read_bytes()
    except OSError as error:
        raise errors.SettingsError(f"{name}: {file}: {error.strerror}") from None
