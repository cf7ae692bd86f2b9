"""Translates git's error output into errors with cause, place and action, without secrets.

Pure. The patterns are the C-locale messages of git, libcurl (GnuTLS and OpenSSL), OpenSSH and the
large hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gitops_ds.core import errors
from gitops_ds.source.git import address


class CommandFailure(msgspec.Struct, frozen=True):
    """A failed git command: its purpose ("fetch from"), the repository as displayed, and stderr."""

    purpose: str
    where: str
    stderr: str
    cache: str = ""
    seconds: float = 0.0


# In place of stderr
TIMEOUT = "git was killed at its time limit"
TOO_LONG = "git was killed at the limit of its output"

_Rule = tuple[str, type[errors.SourceError], str]

# The first match wins. {0} is the first group of the match.
_RULES: tuple[_Rule, ...] = (
    (
        rf"{TIMEOUT}|Operation too slow",
        errors.SourceUnreachable,
        "the server did not finish within {seconds:g} s; try again, or raise repository.timeout",
    ),
    (
        r"No space left on device|[Dd]isk quota exceeded",
        errors.SourceError,
        "no space left on the disk of the cache; free some in {cache}",
    ),
    (
        r"File too large|died of signal 25|[Ff]ile size limit|pack exceeds maximum",
        errors.SourceTooLarge,
        (
            "the fetch exceeds the size limit; raise repository.limits.bytes or use a smaller "
            "repository"
        ),
    ),
    (
        (
            rf"{TOO_LONG}|[Oo]ut of memory|[Cc]annot allocate memory|[Mm]emory allocation"
            # libraries of git's helper for https, with the smallest share
            r"|git-remote-\w+ died of signal 11|cannot create shared object descriptor"
            r"|thread failed to start"
        ),
        errors.GitMemoryExceeded,
        (
            "it has too many branches and tags, commits or files, or too large ones, for the "
            "memory of git; use a smaller repository, or give the pod more memory"
        ),
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        errors.SourceDenied,
        (
            "the server's host key differs from known_hosts: the connection may be intercepted; "
            "request the new key from its operator before you replace the line"
        ),
    ),
    (
        r"Host key verification failed|host key is known for",
        errors.SourceDenied,
        (
            "the server's host key is not in known_hosts; add its line (ssh-keyscan HOST, verified "
            "with its operator)"
        ),
    ),
    (
        r"(?:Load key .*|Couldn't load public key .*): ([^\n\r]*)",
        errors.SourceDenied,
        (
            "the ssh key can't be read ({0}): provide a private key in OpenSSH or PEM format, "
            "without a passphrase"
        ),
    ),
    (
        r"Permission denied \(",
        errors.SourceDenied,
        "the server refused the ssh key; add its public half to the repository's deploy keys",
    ),
    (
        r"Could not resolve host(?:name)?:? ([^\s;:]+)|Name or service not known",
        errors.SourceUnreachable,
        "the host name does not resolve (DNS); check the URL and the name server",
    ),
    (
        r"unable to update url base from redirection|returned error: 30\d",
        errors.SourceDenied,
        (
            "the server redirects to another address, and credentials are not sent after a "
            "redirect; use the new URL"
        ),
    ),
    (
        (
            r"certificate verification failed|SSL certificate problem|certificate (?:is not "
            r"trusted|has expired)"
            r"|does not match target host|issuer is unknown|no alternative certificate"
        ),
        errors.SourceDenied,
        (
            "the server's TLS certificate is not from a trusted authority, or not for this host; "
            "set the authority's certificate (repository.credentials.ca)"
        ),
    ),
    (
        (
            r"error setting certificate|Problem with the SSL CA cert|CAfile|Error reading ca "
            r"cert|unable to get.*trust"
        ),
        errors.SourceDenied,
        "the authority's certificate can't be read; provide it in PEM format",
    ),
    (
        r"could not read (?:Username|Password)|unable to read askpass|terminal prompts disabled",
        errors.SourceDenied,
        (
            "the server requires credentials; set a user and password or a token "
            "(repository.credentials)"
        ),
    ),
    (
        (
            r"Authentication failed|returned error: 401|HTTP Basic: Access denied|[Ii]nvalid "
            r"(?:username|credentials)"
        ),
        errors.SourceDenied,
        (
            "the server refused the credentials (401); check that the token is valid and has not "
            "expired"
        ),
    ),
    (
        (
            r"returned error: 403|Write access to repository not granted|access denied|not allowed "
            r"to (?:push|upload)"
        ),
        errors.SourceDenied,
        ("the credentials lack the permission for this (403); grant it to the token or key"),
    ),
    (
        r"transport '(\w+)' not allowed",
        errors.SourceDenied,
        "git's transport {0} is not allowed; use an https:// or ssh:// URL",
    ),
    (
        r"dubious ownership",
        errors.SourceDenied,
        "the local repository belongs to another user; run as that user or clone it",
    ),
    (
        (
            r"returned error: 404|repository '[^']*' not found|[Rr]epository not found|[Pp]roject "
            r"you were looking for"
            r"|does not appear to be a git repository|not a git repository: ''"
        ),
        errors.SourceDenied,
        (
            "repository not found, or not readable with these credentials; check the URL and the "
            "token's permissions"
        ),
    ),
    (
        (
            r"not our ref|couldn't find remote ref|no such remote ref|unadvertised object|bad "
            r"revision|[Uu]nknown revision"
            r"|Not a valid object name|not a tree object|unable to find"
        ),
        errors.RevisionUnknown,
        "commit, ref or directory not found: {summary}",
    ),
    (
        r"fsck|(?:error|fatal): .*(?:hasDotdot|hasDotgit|fullPathname|treeNotSorted|nullSha1)",
        errors.SourceError,
        "it contains an object that git fsck rejects ({summary}); repair it at its source",
    ),
    (
        (
            r"objects?/.*(?:is corrupt|is empty)|packfile .*(?:corrupt|cannot be accessed|is "
            r"invalid)|inflate: data stream error"
            r"|bad object|missing blob|missing tree|not a git repository"
        ),
        errors.SourceError,
        "the local copy is damaged; delete {cache} (it is only a cache), and try again",
    ),
    (
        (
            r"Failed to connect|Couldn't connect|[Cc]onnection (?:refused|timed "
            r"out|reset|closed)|No route to host"
            r"|Network is unreachable|timed out|Empty reply|early EOF|RPC failed|hung up "
            r"unexpectedly|handshake|TLS connection"
            r"|Could not read from remote|returned error: (?:429|5\d\d)|Proxy|unexpected "
            r"disconnect|GnuTLS recv"
        ),
        errors.SourceUnreachable,
        (
            "the server is unreachable or closed the connection ({summary}); check the URL and the "
            "network, then try again"
        ),
    ),
)


def translate(failure: CommandFailure, secrets: Iterable[str] = ()) -> errors.SourceError:
    """The error for a failed command: its class is for the caller, its message for the user."""
    stderr = clean(failure.stderr, (*secrets,))
    for pattern, kind, template in _RULES:
        if match := re.search(pattern, stderr):
            groups = [g or "" for g in match.groups()]
            message = template.format(
                *groups,
                seconds=failure.seconds,
                cache=failure.cache or "its cache",
                summary=summary_line(stderr),
                where=failure.where,
            )
            return kind(f"can't {failure.purpose} {failure.where}: {message}")
    return errors.SourceError(
        f"can't {failure.purpose} {failure.where}: git reports: {summary_line(stderr)}"
    )


def clean(stderr: str, secrets: Iterable[str] = ()) -> str:
    """stderr without passwords in URLs, secrets, and control characters of the server."""
    for secret in secrets:
        stderr = stderr.replace(secret, "***")
    stderr = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", address.scrub(stderr)).replace("\r", "\n")
    return "".join(c for c in stderr if c == "\n" or (c.isprintable()))


def summary_line(stderr: str) -> str:
    """The most relevant line: git's fatal, else its error, else the server's, else the last one; at
    most 300 characters.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for sign in ("fatal: ", "error: ", "remote: "):
        for line in lines:
            if line.startswith(sign) and len(line) > len(sign):
                return line.removeprefix(sign)[:300].rstrip(".")
    return (lines[-1] if lines else "nothing")[:300]
