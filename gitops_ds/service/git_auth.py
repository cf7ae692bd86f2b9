"""What the settings of a repository mean: as whom we come, whose signatures count, who signs for
us.

Settings name files; they are read anew each time, for a Secret that is mounted changes under its
name.
"""

from __future__ import annotations

import base64
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gitops_ds import errors
from gitops_ds.git import credential_scope, github_app, verification_keys
from gitops_ds.git.address import Address, Scheme
from gitops_ds.git.credentials import (
    ANONYMOUS,
    Bearer,
    Credentials,
    Login,
    OwnSsh,
    Password,
    SshKey,
)
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import SECRET
from gitops_ds.model.signatures import Trust
from gitops_ds.pipeline import open_repository
from gitops_ds.settings.repository import CredentialSettings, RepositorySettings


def trust_of(settings: RepositorySettings) -> Trust:
    """Whose signatures count now. Raises SettingsError for a file that can't be read."""
    told = settings.verify
    files = {
        "signers": ("allowedSignersFile", told.allowed_signers_file),
        "revoked": ("revokedKeysFile", told.revoked_keys_file),
        "openpgp": ("gpgKeysFile", told.gpg_keys_file),
    }
    return Trust(
        told.mode,
        **{
            ours: read(f"repository.verify.{name}", file)
            for ours, (name, file) in files.items()
            if file
        },
    )


# A key of the settings: its field, and its key in a Secret
_FILES = {
    "passwordFile": ("password_file", "password"),
    "tokenFile": ("token_file", "password"),
    "bearerTokenFile": ("bearer_token_file", "bearerToken"),
    "sshKeyFile": ("ssh_key_file", "identity"),
    "knownHostsFile": ("known_hosts_file", "known_hosts"),
    "caFile": ("ca_file", "ca.crt"),
}
# for which a Secret is not asked for again, unless the Git server refuses what was in it
SECRET_SECONDS = 30.0


class ClusterSecrets:
    """Secrets of the cluster, remembered for a while. `namespace` is where one is whose place is
    not named.
    """

    def __init__(self, cluster: Cluster, namespace: str, clock: Callable[[], float]) -> None:
        """Nothing is asked yet."""
        self._cluster, self._namespace, self._clock = cluster, namespace, clock
        self._held: dict[tuple[str, str], tuple[float, Mapping[str, bytes]]] = {}

    async def read(self, namespace: str, name: str, *, anew: bool) -> Mapping[str, bytes]:
        """The data of a Secret. Raises SettingsError where it is missing or may not be read,
        ClusterError.
        """
        place = (namespace or self._namespace, name)
        held = self._held.get(place)
        if anew or held is None or self._clock() - held[0] > SECRET_SECONDS:
            held = self._held[place] = (self._clock(), await self._ask(*place))
        return held[1]

    async def _ask(self, namespace: str, name: str) -> Mapping[str, bytes]:
        said = f"repository.credentials.secretRef: the Secret {namespace}/{name}"
        try:
            body = await self._cluster.get(SECRET, namespace, name)
        except errors.NotFound:
            raise errors.SettingsError(f"{said} does not exist") from None
        except errors.Forbidden:
            raise errors.SettingsError(
                f"{said} may not be read: grant `get` on it to the service account"
            ) from None
        try:
            return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
        except (ValueError, TypeError):
            raise errors.SettingsError(f"{said} holds what is not base64") from None


class Keyring:
    """As whom we come to one repository, read anew each time: what is in files and Secrets changes
    under their names.
    """

    def __init__(
        self,
        settings: RepositorySettings,
        where: Address,
        secrets: ClusterSecrets | None,
        *,
        at_desk: bool = False,
    ) -> None:
        """Raises UsageError for a `match` that is none. At a desk, without any credentials, the
        person's own count.
        """
        self.settings, self.where, self._secrets, self._at_desk = settings, where, secrets, at_desk
        self._tokens = github_app.Tokens(where, time.time)
        self.chosen = chosen(settings.credentials, where)

    async def __call__(self, refused: bool) -> Credentials:
        """The credentials now. Raises SettingsError, and what a GitHub App's token or a Secret may
        raise.
        """
        if self.chosen is None:
            own = (
                open_repository.credentials(self.where)
                if self._at_desk and not self.settings.credentials
                else ANONYMOUS
            )
            return replace(own, proxy=self.settings.proxy)
        parts = await self._parts(self.chosen, refused)
        own = Credentials(
            None, parts.get("ca.crt") or parts.get("caFile") or b"", self.settings.proxy
        )
        login = (
            await self._app(parts, own, refused)
            if "githubAppID" in parts
            else login_of(parts, self.where)
        )
        if login is None and self.where.scheme is Scheme.SSH and self._at_desk:
            login = OwnSsh()
        return replace(own, login=login)

    async def _parts(self, entry: CredentialSettings, refused: bool) -> Mapping[str, bytes]:
        if reference := entry.secret_ref:
            if self._secrets is None:
                raise errors.SettingsError(
                    "repository.credentials.secretRef: there is no cluster to read it from"
                )
            return await self._secrets.read(reference.namespace, reference.name, anew=refused)
        found = _files(entry)
        # A mounted Secret is swapped as a whole; two looks alike are of the same.
        while (again := _files(entry)) != found:
            found = again
        return found

    async def _app(self, parts: Mapping[str, bytes], own: Credentials, refused: bool) -> Login:
        texts = {
            name: _text(parts.get(name, b""))
            for name in ("githubAppID", "githubAppInstallationID", "githubAppBaseURL")
        }
        key = parts.get("githubAppPrivateKey")
        if not key or not texts["githubAppInstallationID"]:
            raise errors.SettingsError(
                "repository.credentials: a GitHub App needs its id, an installation and the "
                "private key"
            )
        app = github_app.App(
            texts["githubAppID"], texts["githubAppInstallationID"], key, texts["githubAppBaseURL"]
        )
        return await self._tokens.login(app, own, refused=refused)


async def trouble(own: Keyring, now: float) -> str:
    """What is wrong with the credentials as they are, before anybody is asked; empty where nothing
    is. Raises GitopsError.
    """
    entries, where = own.settings.credentials, own.where
    if entries and own.chosen is None:
        return (
            f"none of the {len(entries)} sets of credentials is for {where.display}: none is sent"
        )
    found, at = await own(False), credential_scope.place(where)
    if isinstance(found.login, SshKey) and at is not None:
        if not verification_keys.opens(found.login.private_key):
            return "the ssh key can't be used: it must be a private key without a passphrase"
        if not verification_keys.knows(found.login.known_hosts, at.host, at.port):
            return (
                f"known_hosts does not name {at.host}: add its line (ssh-keyscan, compared with "
                "what its operator publishes)"
            )
    if found.authorities:
        try:
            certificates = ssl.create_default_context(
                cadata=found.authorities.decode("ascii")
            ).get_ca_certs()
        except (ssl.SSLError, ValueError):
            return "the authority's certificate can't be read: give it in PEM form"
        ends = max(
            (ssl.cert_time_to_seconds(str(one["notAfter"])) for one in certificates), default=now
        )
        if ends <= now:
            return (
                "the authority's certificate has expired: get the new one from the server's "
                "operator"
            )
    return ""


def chosen(entries: Sequence[CredentialSettings], where: Address) -> CredentialSettings | None:
    """The credentials that are meant for the repository; None where none may go there. Without
    `match` they are for it alone.
    """
    own = credential_scope.place(where)
    if own is None:  # nothing leaves for a local path
        return next((entry for entry in entries if not entry.match), None)
    places = [credential_scope.parse(entry.match) if entry.match else own for entry in entries]
    number = credential_scope.nearest(places, where)
    return None if number is None else entries[number]


def login_of(parts: Mapping[str, bytes], where: Address) -> Login | None:
    """The login among the parts of a Secret, by the names that Flux gives them; the one that fits
    the address counts.

    https://fluxcd.io/flux/components/source/gitrepositories/#secret-reference
    """
    ssh = SshKey(parts["identity"], parts.get("known_hosts", b"")) if "identity" in parts else None
    https: Login | None = None
    if "bearerToken" in parts:
        https = Bearer(_text(parts["bearerToken"]))
    elif "password" in parts:
        https = Password(_text(parts["password"]), _text(parts.get("username", b"")) or "git")
    return (ssh or https) if where.scheme is Scheme.SSH else (https or ssh)


def _files(entry: CredentialSettings) -> Mapping[str, bytes]:
    """What the files of an entry hold, by the names that it has in a Secret."""
    found = {
        key: read(f"repository.credentials.{setting}", file)
        for setting, (field, key) in _FILES.items()
        if (file := getattr(entry, field))
    }
    if entry.username:
        found["username"] = entry.username.encode()
    if app := entry.github_app:
        found["githubAppID"], found["githubAppInstallationID"] = (
            str(app.app_id).encode(),
            str(app.installation_id).encode(),
        )
        found["githubAppPrivateKey"] = read(
            "repository.credentials.githubApp.privateKeyFile", app.private_key_file
        )
        found["githubAppBaseURL"] = app.api_url.encode()
    return found


def _text(data: bytes) -> str:
    """A value without the line break that an editor put behind it. Raises SettingsError."""
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        raise errors.SettingsError(
            "repository.credentials: a password or token is no text"
        ) from None


def read(name: str, file: str) -> bytes:
    """What is in a file that a setting names. Raises SettingsError."""
    try:
        return Path(os.path.expandvars(file)).read_bytes()
    except OSError as error:
        raise errors.SettingsError(f"{name}: {file}: {error.strerror}") from None
