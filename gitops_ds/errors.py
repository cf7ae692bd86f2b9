"""Everything that can go wrong outside a user's own files, named by what to do next.

    GitopsError                    one sentence for the user; `exit_code` by the contract of docs/command-line.md
    ├── UsageError (2)             wrong option or argument
    │   └── SettingsError          wrong settings file
    ├── Refused (1)                a guard said no; nothing was changed
    ├── TimedOut (1)               a wait came to its end
    ├── RolloutFailed (1)          what was waited for can't come: the template fails
    ├── SourceError (3)            Git
    │   ├── SourceUnreachable      retry
    │   ├── SourceDenied           credentials, unknown host key
    │   ├── RevisionUnknown        no such branch, tag or commit
    │   ├── SourceUntrusted        retry: nothing that may be read is signed by whom we trust
    │   ├── SourceTooLarge         over a cap of size or number
    │   │   └── CommitTooHeavy     retry: a commit whose preparation does not end within the limits; another may come
    │   ├── HistoryRewound         the branch went backwards; needs consent
    │   ├── PushRejected           retry: someone pushed first
    │   └── ExpansionFailed        kustomize or helm
    ├── ForgeError (3)             GitHub, GitLab, Gitea, Forgejo: what they say of a comment or a status
    │   ├── ForgeUnreachable       retry
    │   └── ForgeDenied            a token without the right
    └── ClusterError (3)           the API server; carries its HTTP status and reason
        ├── ClusterUnreachable     retry
        │   └── NotLeading         the lease is not ours, or no longer
        ├── Unauthorized           401
        ├── Forbidden              403
        ├── NotFound               404
        ├── AlreadyExists          409 AlreadyExists
        ├── Conflict               409 Conflict, retry
        ├── Expired                410, retry: list again
        ├── Invalid                422: the object is refused
        ├── BadRequest             400, 413, 415: the request is refused; also an admission webhook that gives no code
        ├── TooManyRequests        429, retry after `retry_after` seconds
        └── ServerFault            5xx, retry

A mistake in a repository's files is no exception but a `Finding` (model/finding.py). An exception of a library is translated
where it enters; nothing above sees it.
"""

from __future__ import annotations


class GitopsError(Exception):
    """An error that ends a command, or one turn of a loop; `str()` is the whole sentence for the user."""

    retryable = False
    exit_code = 3


class UsageError(GitopsError):
    """The command line asks for something that can't be meant."""

    exit_code = 2


class SettingsError(UsageError):
    """A settings file is wrong; the message holds file, line and column."""


class Refused(GitopsError):
    """A guard stopped the work before anything was changed."""

    exit_code = 1


class TimedOut(GitopsError):
    """What was waited for did not happen in time."""

    exit_code = 1


class FailedRollout(GitopsError):
    """What was waited for can't come any more without another commit."""

    exit_code = 1


class SourceError(GitopsError):
    """Git could not be read or written."""


class SourceUnreachable(SourceError):
    """The server gave no answer, or a passing one."""

    retryable = True


class SourceDenied(SourceError):
    """The server, or the check of its identity, refused."""


class RevisionUnknown(SourceError):
    """The repository has no such branch, tag or commit."""


class SourceUntrusted(SourceError):
    """No commit that could be read is signed as the settings ask for; a signed one, or another key in the settings, may come."""

    retryable = True


class SourceTooLarge(SourceError):
    """A cap of size, time or number of files was passed."""


class CommitTooHeavy(SourceTooLarge):
    """A commit does not come to its end within the limits of time and memory; the next one may."""

    retryable = True


class HistoryRewound(SourceError):
    """The branch points at an ancestor of what was applied: going back needs consent."""


class PushRejected(SourceError):
    """Someone pushed first."""

    retryable = True


class ExpansionFailed(SourceError):
    """kustomize or helm did not turn its directory into manifests."""


class ForgeError(GitopsError):
    """A forge refused, or did not answer as one."""


class ForgeUnreachable(ForgeError):
    """No answer within the time, a passing failure, or too many requests for it."""

    retryable = True


class ForgeDenied(ForgeError):
    """The token is unknown there, or lacks a right that the message names."""


class ClusterError(GitopsError):
    """The API server refused, failed or was silent.

    `status` is the HTTP status (0 where there was no reply), `reason` the reason of the Status object, `causes` its
    `details.causes` as dictionaries. `said`: the API server's own message, for where advice does not belong.
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
        self.said = message


class ClusterUnreachable(ClusterError):
    """No connection, or no answer in time."""

    retryable = True


class NotLeading(ClusterUnreachable):
    """Not the leader, or no longer: a write was not sent, or given up."""


class Unauthorized(ClusterError):
    """401: the credentials are not known there."""


class Forbidden(ClusterError):
    """403: known, but without the right."""


class NotFound(ClusterError):
    """404: no such object, or no such kind."""


class AlreadyExists(ClusterError):
    """409 on create: the name is taken."""


class Conflict(ClusterError):
    """409: the object moved, or another manager owns a field."""

    retryable = True


class Expired(ClusterError):
    """410: the version asked for is no longer kept; list again."""

    retryable = True


class Invalid(ClusterError):
    """422: the object is refused."""


class BadRequest(ClusterError):
    """400, 413 or 415: the request is refused, by the server or by an admission webhook that denies without a code."""


class TooManyRequests(ClusterError):
    """429: come back after `retry_after` seconds."""

    retryable = True
    retry_after: float = 1.0


class ServerFault(ClusterError):
    """5xx: the server's own trouble; `retry_after` in seconds where it said so, else 0."""

    retryable = True
    retry_after: float = 0.0
