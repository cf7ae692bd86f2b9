"""The credentials of a repository, the keys of its signatures and the author of commits, from the
files and Secrets in the settings.

Files are read each time: the content of a mounted Secret changes under the same name.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.objects import SECRET
from gitops_ds.core.sources.signatures import Trust
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.service.settings import base
from gitops_ds.service.settings.repository import CredentialSettings, RepositorySettings
from gitops_ds.source.git import verification_keys
from gitops_ds.source.git.address import Address, Scheme
from gitops_ds.source.git.commit_writer import Signature
from gitops_ds.source.git.credentials import credential_scope, github_app
from gitops_ds.source.git.credentials.credential_values import (
    ANONYMOUS,
    Bearer,
    Credentials,
    Login,
    OwnSsh,
    Password,
    SshKey,
)
from gitops_ds.source.git.signing import KeyFormat, SigningKey


def trust_of(settings: RepositorySettings) -> Trust:
    """The trusted keys. Raises SettingsError for a file that cannot be read."""
    verify = settings.verify
    files = {
        "signers": ("allowedSignersFile", verify.allowed_signers_file),
        "revoked": ("revokedKeysFile", verify.revoked_keys_file),
        "openpgp": ("gpgKeysFile", verify.gpg_keys_file),
    }
    return Trust(
        verify.mode,
        **{
            field: base.read_file(f"repository.verify.{name}", file)
            for field, (name, file) in files.items()
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
# seconds for which a Secret is cached, unless the Git server rejects its credentials
SECRET_SECONDS = 30.0


class ClusterSecrets:
    """Secrets of the cluster, cached for a while; `namespace` is the default namespace."""

    def __init__(self, cluster: ClusterReader, namespace: str, clock: Callable[[], float]) -> None:
        self._cluster, self._namespace, self._clock = cluster, namespace, clock
        self._cached: dict[tuple[str, str], tuple[float, Mapping[str, bytes]]] = {}

    async def read(self, namespace: str, name: str, *, refresh: bool) -> Mapping[str, bytes]:
        """The data of a Secret, not from the cache with `refresh`.

        Raises SettingsError if it does not exist or access is forbidden, and ClusterError.
        """
        place = (namespace or self._namespace, name)
        cached = self._cached.get(place)
        if refresh or cached is None or self._clock() - cached[0] > SECRET_SECONDS:
            cached = self._cached[place] = (self._clock(), await self._get(*place))
        return cached[1]

    async def _get(self, namespace: str, name: str) -> Mapping[str, bytes]:
        subject = f"repository.credentials.secretRef: the Secret {namespace}/{name}"
        try:
            body = await self._cluster.get(SECRET, namespace, name)
        except errors.NotFound:
            raise errors.SettingsError(f"{subject} does not exist") from None
        except errors.Forbidden:
            raise errors.SettingsError(
                f"{subject} may not be read: grant `get` on it to the service account"
            ) from None
        try:
            return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
        except (ValueError, TypeError):
            raise errors.SettingsError(f"{subject} contains invalid base64") from None


class Keyring:
    """The credentials of one repository, read each time: files and Secrets change."""

    def __init__(
        self,
        settings: RepositorySettings,
        where: Address,
        secrets: ClusterSecrets | None,
        *,
        at_desk: bool = False,
    ) -> None:
        """Raises UsageError for an invalid `match`. With `at_desk` and without credentials in the
        settings, those of the user apply.
        """
        self.settings, self.where, self._secrets, self._at_desk = settings, where, secrets, at_desk
        self._tokens = github_app.Tokens(where, time.time)
        self.chosen = chosen(settings.credentials, where)

    async def __call__(self, refused: bool) -> Credentials:
        """The current credentials; `refused` after the server rejected the last ones.

        Raises SettingsError, and the errors of a GitHub App's token and of a Secret.
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
                    "repository.credentials.secretRef: no cluster is available to read it from"
                )
            return await self._secrets.read(reference.namespace, reference.name, refresh=refused)
        parts = _files(entry)
        # A mounted Secret is replaced as a whole: two equal reads have one version.
        while (next_parts := _files(entry)) != parts:
            parts = next_parts
        return parts

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
    """The problem of the credentials that is visible without a request; empty without one.

    Raises GitopsError.
    """
    entries, where = own.settings.credentials, own.where
    if entries and own.chosen is None:
        return (
            f"none of the {len(entries)} sets of credentials matches {where.display}: none is sent"
        )
    credentials, at = await own(False), credential_scope.place(where)
    if isinstance(credentials.login, SshKey) and at is not None:
        if not verification_keys.opens(credentials.login.private_key):
            return "the ssh key is not usable: it must be a private key without a passphrase"
        if not verification_keys.knows(credentials.login.known_hosts, at.host, at.port):
            return (
                f"known_hosts does not name {at.host}: add its line (ssh-keyscan, compared with "
                "what its operator publishes)"
            )
    if credentials.authorities:
        try:
            certificates = ssl.create_default_context(
                cadata=credentials.authorities.decode("ascii")
            ).get_ca_certs()
        except (ssl.SSLError, ValueError):
            return "the authority's certificate is invalid: it must have PEM format"
        ends = max(
            (
                ssl.cert_time_to_seconds(str(certificate["notAfter"]))
                for certificate in certificates
            ),
            default=now,
        )
        if ends <= now:
            return (
                "the authority's certificate has expired: get the new one from the server's "
                "operator"
            )
    return ""


def chosen(entries: Sequence[CredentialSettings], where: Address) -> CredentialSettings | None:
    """The credentials of the repository; None if none match. Without `match` they apply only to
    it.
    """
    own = credential_scope.place(where)
    if own is None:  # a local path needs no credentials
        return next((entry for entry in entries if not entry.match), None)
    places = [credential_scope.parse(entry.match) if entry.match else own for entry in entries]
    number = credential_scope.nearest(places, where)
    return None if number is None else entries[number]


def login_of(parts: Mapping[str, bytes], where: Address) -> Login | None:
    """The login in a Secret with the keys of Flux; of several, the one for the scheme of the
    address.

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
    """The contents of an entry's files, by the keys of a Secret."""
    contents = {
        key: base.read_file(f"repository.credentials.{setting}", file)
        for setting, (field, key) in _FILES.items()
        if (file := getattr(entry, field))
    }
    if entry.username:
        contents["username"] = entry.username.encode()
    if app := entry.github_app:
        contents["githubAppID"], contents["githubAppInstallationID"] = (
            str(app.app_id).encode(),
            str(app.installation_id).encode(),
        )
        contents["githubAppPrivateKey"] = base.read_file(
            "repository.credentials.githubApp.privateKeyFile", app.private_key_file
        )
        contents["githubAppBaseURL"] = app.api_url.encode()
    return contents


def _text(data: bytes) -> str:
    """A value without the line break at its end. Raises SettingsError."""
    try:
        return data.decode().strip()
    except UnicodeDecodeError:
        raise errors.SettingsError(
            "repository.credentials: a password or token is not UTF-8 text"
        ) from None


def commit_signature(settings: RepositorySettings, at: float) -> Signature:
    """The author of the service's commits at a time in seconds since 1970, with the present
    signing key in its file.

    Raises SettingsError for a file that can't be read.
    """
    author = settings.author
    key = (
        SigningKey(
            base.read_file("repository.author.signingKeyFile", author.signing_key_file),
            KeyFormat(author.format),
        )
        if author.signing_key_file
        else None
    )
    return Signature(author.name, author.email, datetime.fromtimestamp(int(at), UTC), key)
