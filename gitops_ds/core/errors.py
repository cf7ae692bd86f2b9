"""Every error that is not a finding in a user's files, named by the reaction to it.

    GitopsError               one sentence for the user; `exit_code`: docs/reference/command-line.md
    ├── UsageError (2)        wrong option or argument
    │   └── SettingsError     wrong settings file
    ├── Refused (1)           a guard blocked the work; nothing was changed
    │   └── OwnerRefused      retry: the name of a repository is invalid, or that of another one
    ├── TimedOut (1)          a wait reached its time limit
    ├── FailedRollout (1)     the awaited rollout cannot succeed: the template fails
    ├── NoMatch (3)           no object, page, commit or service of that name in what was read
    ├── NotPermitted (3)      a rule of our own forbids the request; it was not sent
    ├── WriteContention (3)   retry: other clients changed an object between each read and write
    ├── SourceError (3)       Git
    │   ├── SourceUnreachable retry
    │   ├── SourceDenied      credentials, unknown host key
    │   ├── RevisionUnknown   no such branch, tag or commit
    │   ├── SourceUntrusted   retry: no readable commit has a trusted signature
    │   ├── SourceTooLarge    over a cap of size or number
    │   │   └── CommitTooHeavy  retry: the preparation of a commit exceeds its limits
    │   ├── CommitRefused     retry: a commit does not have the cluster of the settings
    │   ├── HistoryRewound    the branch went backwards; needs consent
    │   ├── PushRejected      retry: another push was first
    │   └── ExpansionFailed   kustomize or helm
    ├── ForgeError (3)        GitHub, GitLab, Gitea, Forgejo
    │   ├── ForgeUnreachable  retry
    │   └── ForgeDenied       a token without the right
    └── ClusterError (3)      the API server; carries its HTTP status and reason
        ├── ClusterUnreachable  retry
        │   └── NotLeading    the lease is not ours, or no longer
        ├── Unauthorized      401
        ├── Forbidden         403
        ├── NotFound          404
        ├── AlreadyExists     409 AlreadyExists
        ├── Conflict          409 Conflict, retry
        │   └── StaleView     retry: the cluster has changed since it was observed
        ├── Expired           410, retry: list again
        ├── Invalid           422: the object is refused
        ├── BadRequest        400, 413, 415; also an admission webhook that gives no code
        ├── TooManyRequests   429, retry after `retry_after` seconds
        └── ServerFault       5xx, retry

A mistake in a repository's files is a `Finding` (model/finding.py), not an exception. An exception
of a library is translated at the call; callers above never receive it.
"""

from __future__ import annotations


class GitopsError(Exception):
    """An error that ends a command, or one reconciliation; `str()` is the sentence for the user."""

    retryable = False
    exit_code = 3


class UsageError(GitopsError):
    """A wrong option or argument."""

    exit_code = 2


class SettingsError(UsageError):
    """An invalid settings file; the message contains file, line and column."""


class Refused(GitopsError):
    """A guard stopped the work before anything was changed."""

    exit_code = 1


class OwnerRefused(Refused):
    """The name that a repository gives itself is invalid, or is that of another repository.

    Retryable: the next commit may have another name.
    """

    retryable = True


class TimedOut(GitopsError):
    """The awaited state was not reached in time."""

    exit_code = 1


class FailedRollout(GitopsError):
    """The awaited rollout cannot succeed without another commit."""

    exit_code = 1


class NoMatch(GitopsError):
    """No object, page, commit or service of that name in what was read."""


class NotPermitted(GitopsError):
    """One of our rules forbids the request, which was not sent."""


class WriteContention(GitopsError):
    """Other clients changed an object between each read and write of several attempts."""

    retryable = True


class SourceError(GitopsError):
    """Git could not be read or written."""


class SourceUnreachable(SourceError):
    """The server did not respond, or reported a temporary failure."""

    retryable = True


class SourceDenied(SourceError):
    """The server refused the request, or the check of its identity failed."""


class RevisionUnknown(SourceError):
    """The repository has no such branch, tag or commit."""


class SourceUntrusted(SourceError):
    """No readable commit has the signature that the settings require.

    Retryable: a signed commit, or another key in the settings, may follow.
    """

    retryable = True


class SourceTooLarge(SourceError):
    """A cap on size, time or number of files was exceeded."""


class GitMemoryExceeded(SourceTooLarge):
    """A git command exceeded its share of the memory."""


class CommitTooHeavy(SourceTooLarge):
    """The preparation of a commit exceeds the limits of time and memory; the next one may not."""

    retryable = True


class CommitRefused(SourceError):
    """A commit does not have the cluster that the settings name; the next one may."""

    retryable = True


class HistoryRewound(SourceError):
    """The branch points at an ancestor of the applied commit, which requires approval."""


class PushRejected(SourceError):
    """Another push was first."""

    retryable = True


class ExpansionFailed(SourceError):
    """kustomize or helm failed to render its directory."""


class ForgeError(GitopsError):
    """A forge refused the request, or its response is invalid."""


class ForgeUnreachable(ForgeError):
    """No response in time, a temporary failure, or its rate limit."""

    retryable = True


class ForgeDenied(ForgeError):
    """The token is invalid, or lacks the permission in the message."""


class ClusterError(GitopsError):
    """The API server refused a request, failed, or did not respond.

    `status` is the HTTP status (0 without a reply), `reason` the reason of the Status object,
    `causes` its `details.causes` as dictionaries. `server_message` is the API server's own message,
    without our advice.
    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.34/#status-v1-meta
    """

    def __init__(
        self,
        message: str,
        status: int = 0,
        reason: str = "",
        causes: tuple[dict[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.causes = status, reason, causes
        self.server_message = message


class NoKubeconfig(ClusterError):
    """The kubeconfig does not exist."""


class ClusterUnreachable(ClusterError):
    """No connection, or no response in time."""

    retryable = True


class NotLeading(ClusterUnreachable):
    """This process is not the leader, or no longer: a write was not sent, or abandoned."""


class Unauthorized(ClusterError):
    """401: invalid credentials."""


class Forbidden(ClusterError):
    """403: a permission is missing."""


class NotFound(ClusterError):
    """404: no such object, or no such kind."""


class AlreadyExists(ClusterError):
    """409 on create: the name is taken."""


class Conflict(ClusterError):
    """409: the object has changed, or another manager owns a field."""

    retryable = True


class StaleView(Conflict):
    """The cluster has changed since it was observed, so that an action no longer applies."""


class Expired(ClusterError):
    """410: the requested version is no longer kept; list again."""

    retryable = True


class WatchSilent(ClusterError):
    """A watch received neither an event nor a bookmark for minutes: what happened since is unknown,
    so list again.
    """

    retryable = True


class Invalid(ClusterError):
    """422: the object is refused."""


class BadRequest(ClusterError):
    """400, 413 or 415, also of an admission webhook that denies without a code."""


class TooManyRequests(ClusterError):
    """429: retry after `retry_after` seconds."""

    retryable = True
    retry_after: float = 1.0


class ServerFault(ClusterError):
    """5xx: a failure of the server; `retry_after` in seconds if set by the server, else 0."""

    retryable = True
    retry_after: float = 0.0
