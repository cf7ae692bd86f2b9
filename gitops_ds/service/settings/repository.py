"""The settings of a repository: its address, its schedule, its credentials, its signatures."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from gitops_ds.core.duration import Duration
from gitops_ds.core.errors import SettingsError
from gitops_ds.core.rollouts.staged_rollout import Approver
from gitops_ds.core.sources.signatures import Mode
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.service.settings.apply import RepositoryApplySettings
from gitops_ds.service.settings.base import (
    NonEmptyText,
    Positive,
    Ratio,
    SettingsGroup,
    default_duration,
    default_share,
    describe,
)
from gitops_ds.service.settings.listen import RepositoryWebhookSettings

ApproverName = Annotated[str, msgspec.Meta(pattern=r"^[^\s,]+$")]


class ApproverSettings(SettingsGroup, frozen=True):
    """A team or a user in `approval.from` of a rollout policy."""

    keys: Annotated[
        frozenset[NonEmptyText],
        describe(
            "Keys of repository.verify that sign commits: fingerprints, or principals of "
            "allowedSignersFile."
        ),
    ] = frozenset()
    users: Annotated[frozenset[NonEmptyText], describe("User names of the forge, for reviews.")] = (
        frozenset()
    )
    teams: Annotated[
        frozenset[NonEmptyText],
        describe("Teams of the forge, ORGANIZATION/TEAM; with GitLab the path of a group."),
    ] = frozenset()

    def __post_init__(self) -> None:
        """Raises SettingsError for an approver without a key, a user and a team."""
        if not (self.keys or self.users or self.teams):
            raise SettingsError(
                "repository.approvers: an approver needs keys, users or teams, or can never approve"
            )
        if wrong := sorted(team for team in self.teams if not team.strip("/")):
            raise SettingsError(f"repository.approvers: {wrong[0]!r} is not a team")

    def named(self, name: str) -> Approver:
        """The approver; names of users and teams are compared without case."""
        users = frozenset(user.lower() for user in self.users)
        return Approver(name, self.keys, users, frozenset(team.strip("/") for team in self.teams))


_PROXY = re.compile(
    r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?/?|https?://\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?/?"
)


class LimitSettings(SettingsGroup, frozen=True):
    """Caps on a fetched commit."""

    files: Annotated[Positive | None, describe("The number of files.")] = None
    bytes: Annotated[
        Positive | None,
        describe(
            "The size of all files, in bytes. Default: 512 MiB for a fetch and for the "
            "local copy with its history, and a sixteenth of the memory limit, at most "
            "64 MiB, for the files of a commit. The volume `cache` must hold the copies of all "
            "repositories and one more fetch: its 2 GiB suffice for three repositories."
        ),
    ] = None
    file_bytes: Annotated[Positive | None, describe("The size of one file, in bytes.")] = None


class SecretReference(SettingsGroup, frozen=True):
    """A Secret of the cluster with credentials, in the keys that Flux uses."""

    name: Annotated[NonEmptyText, describe("Its name.")]
    namespace: Annotated[str, describe("Its namespace. Default: that of the service.")] = ""


class GithubAppSettings(SettingsGroup, frozen=True):
    """A GitHub App, whose tokens are valid for an hour."""

    app_id: Annotated[str | int, describe("The id of the app, or its client id.")] = msgspec.field(
        name="appID"
    )
    installation_id: Annotated[str | int, describe("The id of its installation.")] = msgspec.field(
        name="installationID"
    )
    private_key_file: Annotated[
        NonEmptyText, describe("A file with the private key that GitHub created.")
    ]
    api_url: Annotated[str, describe("The address of the API, if not the usual one.")] = (
        msgspec.field(name="apiURL", default="")
    )


class CredentialSettings(SettingsGroup, frozen=True):
    """Credentials for Git servers; secrets are in files, or in a Secret of the cluster."""

    match: Annotated[
        NonEmptyText,
        describe(
            "The URL prefix they are for: https://HOST/PATH or ssh://HOST/PATH. Default: this "
            "repository."
        ),
    ] = ""
    secret_ref: Annotated[
        SecretReference | None,
        describe("A Secret of the cluster that holds them, in the keys that Flux uses."),
    ] = None
    github_app: Annotated[
        GithubAppSettings | None,
        describe("A GitHub App, whose tokens are valid for an hour."),
    ] = None
    bearer_token_file: Annotated[
        str, describe("A file with a token that is sent as Authorization: Bearer.")
    ] = ""
    username: Annotated[str, describe("The user name, for https.")] = ""
    password_file: Annotated[str, describe("A file with the password.")] = ""
    token_file: Annotated[str, describe("A file with the token.")] = ""
    ca_file: Annotated[str, describe("A file with the CA certificates of the server.")] = ""
    ssh_key_file: Annotated[str, describe("A file with the private key.")] = ""
    known_hosts_file: Annotated[
        str, describe("A file with the keys of known hosts; other hosts are refused.")
    ] = ""


class VerifyMode(StrEnum):
    """What must be signed; `commit` is an older spelling of `head`."""

    NONE = "none"
    HEAD = "head"
    COMMIT = "commit"
    ALL = "all"
    TAG = "tag"


class VerifySettings(SettingsGroup, frozen=True):
    """What must be signed, and the files of trusted keys."""

    required: Annotated[
        VerifyMode | None,
        describe(
            "The commits that must be signed: none, head (also commit), all, or the tag. "
            "Default: head with keys, else none."
        ),
    ] = msgspec.field(name="mode", default=None)
    allowed_signers_file: Annotated[
        str, describe("A file of allowed signers, in the format of ssh-keygen.")
    ] = ""
    revoked_keys_file: Annotated[
        str, describe("A file of revoked ssh keys, in the format of ssh-keygen.")
    ] = ""
    gpg_keys_file: Annotated[str, describe("A file of OpenPGP keys.")] = ""
    force_push: Annotated[
        Literal["follow", "refuse"] | None,
        describe(
            "Whether a rewritten branch is followed, or waits for approval. Default: "
            "refuse for the mode all, else follow."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raises SettingsError if signatures are required and no key is trusted."""
        if self.mode is not Mode.NONE and not (self.allowed_signers_file or self.gpg_keys_file):
            raise SettingsError(
                f"repository.verify.mode is {self.required or 'head'}, but no key is trusted: set "
                "allowedSignersFile or gpgKeysFile"
            )

    @property
    def mode(self) -> Mode:
        """The required signatures; with keys, by default that of the tip."""
        files = (self.allowed_signers_file, self.revoked_keys_file, self.gpg_keys_file)
        required = self.required or (VerifyMode.HEAD if any(files) else VerifyMode.NONE)
        return Mode.HEAD if required is VerifyMode.COMMIT else Mode(required.value)

    @property
    def follows_rewrites(self) -> bool:
        """Whether a force-push needs no approval.

        Under `all` each commit must be signed, but signatures do not contain the branch: a
        force-push could add commits of another one.
        """
        if self.force_push is not None:
            return self.force_push == "follow"
        return self.mode is not Mode.ALL


class AuthorSettings(SettingsGroup, frozen=True):
    """The author of commits of the service, and the key that signs them."""

    name: Annotated[NonEmptyText, describe("The name.")] = "gitops-ds"
    email: Annotated[NonEmptyText, describe("The address.")] = "gitops-ds@noreply.gitops-ds.io"
    signing_key_file: Annotated[
        str,
        describe(
            "A file with the private key that signs them, without a passphrase; required "
            "with push if signatures are required."
        ),
    ] = ""
    format: Annotated[Literal["ssh", "openpgp"], describe("The kind of that key.")] = "ssh"


class ForgeSettings(SettingsGroup, frozen=True):
    """The forge of a repository; unset keys follow from the repository's address."""

    kind: Annotated[ForgeKind, describe("Its kind.")]
    token_file: Annotated[
        NonEmptyText, describe("A file with a token that may set the status of commits.")
    ]
    url: Annotated[
        str, describe("Its address, or that of its API. Default: that of the repository.")
    ] = ""
    project: Annotated[
        str, describe("OWNER/NAME of the repository there. Default: the path of its address.")
    ] = ""
    allow_http: Annotated[
        bool, describe("Whether the token may be sent over http, in a private network.")
    ] = False


class RepositorySettings(SettingsGroup, frozen=True):
    """A Git repository, and the settings of its deployment."""

    url: Annotated[
        NonEmptyText,
        describe(
            "https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH; with allowLocal a path."
        ),
    ]
    branch: Annotated[
        str, describe("Follow this branch. Default: the default branch of the server.")
    ] = ""
    tag: Annotated[str, describe("Stay at this tag.")] = ""
    semver: Annotated[str, describe("Follow the highest tag in this range, such as >=1.2 <2.")] = ""
    commit: Annotated[str, msgspec.Meta(extra_json_schema={"$ref": "#/$defs/commit"})] = ""
    ref: Annotated[str, describe("Follow this ref, such as refs/heads/main.")] = ""
    path: Annotated[str, describe("The directory of the repository that is deployed.")] = ""
    allow_local: Annotated[bool, describe("Whether url may be a local path or file://.")] = False
    interval: Annotated[Duration, describe("How often Git is polled.")] = default_duration("60s")
    jitter: Annotated[
        Ratio,
        describe(
            "The variation of the interval, in seconds or per cent, which spreads the polls of "
            "many services."
        ),
    ] = default_share("10%")
    schedule: Annotated[
        str,
        msgspec.Meta(pattern=r"^\s*\S+(\s+\S+){4}\s*$"),
        describe(
            "When Git is polled instead of at an interval: a crontab, minute hour day month "
            "weekday."
        ),
    ] = ""
    timezone: Annotated[
        NonEmptyText, describe("The time zone of the schedule, such as Europe/Berlin.")
    ] = "UTC"
    webhook: Annotated[
        RepositoryWebhookSettings, describe("Webhooks only for this repository.")
    ] = msgspec.field(default_factory=RepositoryWebhookSettings)
    retry_interval: Annotated[
        Duration,
        describe(
            "The time between a failure and the next attempt; longer each time, up to 5 minutes."
        ),
    ] = default_duration("15s")
    timeout: Annotated[Duration, describe("The time limit of one poll.")] = default_duration("60s")
    limits: Annotated[LimitSettings, describe("Limits of a fetched commit.")] = msgspec.field(
        default_factory=LimitSettings
    )
    one_or_more_credentials: Annotated[
        CredentialSettings | tuple[CredentialSettings, ...],
        describe(
            "Credentials for the Git server; secrets are in files. A list holds several, each "
            "with match."
        ),
    ] = msgspec.field(name="credentials", default=())
    verify: Annotated[VerifySettings, describe("The required signatures of commits.")] = (
        msgspec.field(default_factory=VerifySettings)
    )
    apply: Annotated[
        RepositoryApplySettings,
        describe("How commits of this repository are applied, if not as by the common settings."),
    ] = msgspec.field(default_factory=RepositoryApplySettings)
    forge: Annotated[
        ForgeSettings | None, describe("The forge that shows the status of commits.")
    ] = None
    approvers: Annotated[
        dict[ApproverName, ApproverSettings],
        describe(
            "Who may approve stages of rollouts, by the names in approval.from of the policies. "
            "With a name here the annotation gitops-ds.io/approve does not count."
        ),
    ] = msgspec.field(default_factory=dict)
    push: Annotated[
        bool,
        describe(
            "Whether the service may push to the repository: the reverts of halted rollouts, and "
            "the report of the cluster for those behind it. The credentials need write access."
        ),
    ] = False
    author: Annotated[AuthorSettings, describe("The author of commits of the service.")] = (
        msgspec.field(default_factory=AuthorSettings)
    )
    proxy: Annotated[
        str,
        describe(
            "The proxy for https, such as http://HOST:PORT. Default: the environment variables."
        ),
    ] = ""

    @property
    def credentials(self) -> tuple[CredentialSettings, ...]:
        """The sets of credentials; an empty set is ignored."""
        sets = self.one_or_more_credentials
        if isinstance(sets, CredentialSettings):
            return (sets,) if sets != CredentialSettings() else ()
        return sets

    @property
    def jitter_seconds(self) -> float:
        """The variation of the interval."""
        limit = self.jitter.limit
        return limit.share * self.interval if limit.number is None else float(limit.number)

    def __post_init__(self) -> None:
        """Raises SettingsError for keys that contradict each other."""
        sets = self.one_or_more_credentials
        if isinstance(sets, tuple) and any(not field_set.match for field_set in sets):
            raise SettingsError(
                "repository.credentials: each item of a list needs match: https://HOST/PATH or "
                "ssh://HOST/PATH"
            )
        if self.proxy and not _PROXY.fullmatch(self.proxy):
            raise SettingsError(
                "repository.proxy must be http://HOST:PORT or https://HOST:PORT, without a user "
                "or a password"
            )
        if self.proxy and not self.url.lower().startswith("https://"):
            raise SettingsError("repository.proxy is for https:// only; ssh connects directly")
        if self.push and self.verify.mode is not Mode.NONE and not self.author.signing_key_file:
            raise SettingsError(
                "repository.push is true and repository.verify requires signatures: set "
                "repository.author.signingKeyFile, and trust that key"
            )
        self._check_approvers()
        follows_tag = self.tag or self.semver or self.ref.startswith("refs/tags/")
        if self.verify.mode is Mode.TAG and not follows_tag:
            raise SettingsError(
                "repository.verify.mode is tag, but no tag is followed: set repository.tag or "
                "repository.semver"
            )

    def _check_approvers(self) -> None:
        """Raises SettingsError for approvers whose approvals can never be verified."""
        approvers, verify = self.approvers.values(), self.verify
        if any(approver.keys for approver in approvers) and not (
            verify.allowed_signers_file or verify.gpg_keys_file
        ):
            raise SettingsError(
                "repository.approvers has keys, but no key is trusted: set "
                "repository.verify.allowedSignersFile or gpgKeysFile"
            )
        if any(approver.users or approver.teams for approver in approvers) and self.forge is None:
            raise SettingsError(
                "repository.approvers has users or teams, which need repository.forge"
            )
