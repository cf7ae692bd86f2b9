"""git's complaints, turned into our errors: what is wrong, where, and what to do; without any
secret.

Pure. The patterns are the C-locale words of git, libcurl (GnuTLS and OpenSSL), OpenSSH and the
large hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gitops_ds import errors
from gitops_ds.git import address


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """A command of git that failed: what it was for ("fetch from"), the repository as people see
    it, and git's words.
    """

    doing: str
    where: str
    words: str
    cache: str = ""
    seconds: float = 0.0


TIMEOUT = "git was ended after its time limit"  # our own words, where git said none

_Rule = tuple[str, type[errors.SourceError], str]

# The first that matches wins. {0} is the first group of the match.
_RULES: tuple[_Rule, ...] = (
    (
        rf"{TIMEOUT}|Operation too slow",
        errors.SourceUnreachable,
        "the server did not finish within {seconds:g} s; try again, or raise repository.timeout",
    ),
    (
        r"No space left on device|[Dd]isk quota exceeded",
        errors.SourceError,
        "no space is left on the disk of the cache; free some in {cache}",
    ),
    (
        r"File too large|died of signal 25|[Ff]ile size limit|pack exceeds maximum",
        errors.SourceTooLarge,
        (
            "it would bring more than the cap on size allows; raise repository.limits.bytes or use a "
            "smaller repository"
        ),
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        errors.SourceDenied,
        (
            "the server's host key is not the one in known_hosts: someone may listen in; "
            "ask its operator for the new key, and only then replace the line"
        ),
    ),
    (
        r"Host key verification failed|host key is known for",
        errors.SourceDenied,
        (
            "the server's host key is not in known_hosts; add its line (ssh-keyscan HOST, compared "
            "with what its operator publishes)"
        ),
    ),
    (
        r"(?:Load key .*|Couldn't load public key .*): ([^\n\r]*)",
        errors.SourceDenied,
        (
            "the ssh key can't be read ({0}): give a private key in OpenSSH or PEM form, without a "
            "passphrase"
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
        "the host's name has no address (DNS); check the URL and the name server",
    ),
    (
        r"unable to update url base from redirection|returned error: 30\d",
        errors.SourceDenied,
        (
            "the server redirects to another address, and credentials are not sent after a redirect; "
            "use the new URL"
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
            "the server's TLS certificate is not from a known authority, or not for this host; "
            "give the authority's certificate (repository.credentials.ca)"
        ),
    ),
    (
        (
            r"error setting certificate|Problem with the SSL CA cert|CAfile|Error reading ca "
            r"cert|unable to get.*trust"
        ),
        errors.SourceDenied,
        "the given authority's certificate can't be read; give it in PEM form",
    ),
    (
        r"could not read (?:Username|Password)|unable to read askpass|terminal prompts disabled",
        errors.SourceDenied,
        (
            "the server asks for credentials; give a user and password or a token "
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
            "the server refused the credentials (401); check that the token is right and has not "
            "expired"
        ),
    ),
    (
        (
            r"returned error: 403|Write access to repository not granted|access denied|not allowed to "
            r"(?:push|upload)"
        ),
        errors.SourceDenied,
        (
            "the credentials are known there but have no right to do this (403); give the token or "
            "key that right"
        ),
    ),
    (
        r"transport '(\w+)' not allowed",
        errors.SourceDenied,
        "git's transport {0} is not allowed here; use an https:// or ssh:// URL",
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
            "there is no such repository, or these credentials may not see it; check the URL and the "
            "token's rights"
        ),
    ),
    (
        (
            r"not our ref|couldn't find remote ref|no such remote ref|unadvertised object|bad "
            r"revision|[Uu]nknown revision"
            r"|Not a valid object name|not a tree object|unable to find"
        ),
        errors.RevisionUnknown,
        "the repository has no such commit, ref or directory: {said}",
    ),
    (
        r"fsck|(?:error|fatal): .*(?:hasDotdot|hasDotgit|fullPathname|treeNotSorted|nullSha1)",
        errors.SourceError,
        "it holds an object that git's own check refuses ({said}); repair it at its source",
    ),
    (
        (
            r"objects?/.*(?:is corrupt|is empty)|packfile .*(?:corrupt|cannot be accessed|is "
            r"invalid)|inflate: data stream error"
            r"|bad object|missing blob|missing tree|not a git repository"
        ),
        errors.SourceError,
        "our copy of it is damaged; delete {cache} (it is only a cache), and try again",
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
            "the server can't be reached or broke off ({said}); check the URL and the network, then "
            "try again"
        ),
    ),
)


def translate(failure: CommandFailure, secrets: Iterable[str] = ()) -> errors.SourceError:
    """The error for a failed command: its class says what to do, its sentence says it to people."""
    words = clean(failure.words, (*secrets,))
    for pattern, kind, sentence in _RULES:
        if found := re.search(pattern, words):
            groups = [g or "" for g in found.groups()]
            said = sentence.format(
                *groups,
                seconds=failure.seconds,
                cache=failure.cache or "its cache",
                said=summary_line(words),
                where=failure.where,
            )
            return kind(f"can't {failure.doing} {failure.where}: {said}")
    return errors.SourceError(
        f"can't {failure.doing} {failure.where}: git says: {summary_line(words)}"
    )


def clean(words: str, secrets: Iterable[str] = ()) -> str:
    """git's words without the passwords in URLs, without our secrets, without the server's control
    characters.
    """
    for secret in secrets:
        words = words.replace(secret, "***")
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", address.scrub(words)).replace("\r", "\n")
    return "".join(c for c in words if c == "\n" or (c.isprintable()))


def summary_line(words: str) -> str:
    """The line that says most: git's fatal, else its error, else the server's, else the last one;
    at most 300 characters.
    """
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    for sign in ("fatal: ", "error: ", "remote: "):
        for line in lines:
            if line.startswith(sign) and len(line) > len(sign):
                return line.removeprefix(sign)[:300].rstrip(".")
    return (lines[-1] if lines else "nothing")[:300]
