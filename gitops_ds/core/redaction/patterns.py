"""The marks of a secret: its name, or the form that its issuer documents. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache
from typing import Any, Final

from gitops_ds.core.objects import ListMember

HIDDEN: Final = "<redacted>"

_IMPLIES_SECRET: Final = re.compile(
    r"pass$|passw|passphrase|pwd|secret|token|credential|cookie|bearer|authorization|webhook|hmac"
    r"|(^|[_.-])(auth|dsn|pat|sig|signature|salt)$|connection[_.-]?string"
    r"|(api|private|access|account|license|shared|signing|encryption|master)[_.-]?key"
    r"|last-applied-configuration$",  # the whole object again, as `kubectl apply` sent it
    re.IGNORECASE,
)
# Names that mention a secret, but whose values are not secret: `secretName`, `tokenTTL`.
_MENTIONS_SECRET: Final = re.compile(
    r"(file|files|path|paths|dir|directory|name|names|namespace|ref|refs|url|uri|mount|mounts|enabled|mode|optional|version|kind|type"
    r"|count|total|seconds|ttl|expiration\w*|secrets)$",
    re.IGNORECASE,
)
# Cloud and forge keys, chat tokens, payment keys and age identities, each to its end.
ISSUED: Final = "|".join(
    (
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{36,}",
        r"\bgithub_pat_\w{22,}",
        r"\bglpat-[\w-]{20,}",
        r"\bxox[abprs]-[\w-]{10,}",
        r"\bAIza[\w-]{35}",
        r"\b[sr]k_live_\w{16,}",
        r"\bAGE-SECRET-KEY-1[0-9A-Z]{20,}",
    )
)
# A key, a token, text encrypted by SOPS, a password in a URL or in the DSN of a database driver
# (user:password@tcp(host)).
SHAPES: Final = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
            ISSUED,
            r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
            r"\bENC\[[^\[\]\s]{8,}\]",
            r"(?<=://)[^\s/@:\"']*:[^\s/@\"']+(?=@)",
            r"(?<![\w.:/-])[\w.-]{1,64}:[^\s/@:\"']{3,128}(?=@(?:tcp|udp|unix)\b)",
        )
    ),
    re.DOTALL,
)
# A part of each of these patterns. Most strings match none, and this test takes a hundredth of the
# time.
MAY_HAVE_SHAPE: Final = re.compile(
    r"BEGIN |A[KS]IA|gh[pousr]_|github_pat_|glpat-|xox|AIza|_live_|AGE-SEC|eyJ|ENC\["
    r"|://[^\s/@]*@|@(?:tcp|udp|unix)"  # not each @: most images have a digest
)
ORDINARY: Final = frozenset(
    {"true", "false", "null", "none", "admin", "root", "default", "changeme", "daemonset", "opaque"}
)
_REFERENCE: Final = re.compile(r"\$\([^)]*\)|\$\{[^}]*\}|\$\w+")
# Entropy per character: that of a random hexadecimal word is above, that of words in settings
# below.
_BITS: Final = 3.2
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/_=.~-]{16,}")

# The endings of names that certainly mean a secret (DS514), and values that are not secrets:
# variables, templates, paths, booleans, numbers, words like "changeme" in brackets.
_NAMES_SECRET: Final = re.compile(
    r"(?:pass(?:word|wd|phrase)|secret|token|(?:api|access|private|secret|account|license)[_.-]?key|credentials?)\Z",
    re.IGNORECASE,
)
_NO_SECRET: Final = re.compile(
    r"|[$%{<\[(*].*|/.*|[A-Za-z]:\\.*|.{0,3}|true|false|none|null|yes|no|optional|required|disabled|enabled|redacted|x+|[0-9]{1,5}"
    r"|(?:env|file|vault|ref|secret|aws-sm|awssm|gcp-sm|https?)(?:://|:).*|[\w.-]+\.(?:txt|pem|key|crt|json|ya?ml|conf)",
    re.IGNORECASE | re.DOTALL,
)
_CERTAIN_SHAPES: Final = re.compile(
    rf"-----BEGIN [A-Z ]{{0,20}}PRIVATE KEY-----|{ISSUED}"
    r"|\beyJ[\w-]{16,}\.eyJ[\w-]{16,}\.[\w-]{16}"
    r"|://[\w.+-]{1,64}:[^\s/@:\"'${<*]{3,128}@"
)


# Fields of Kubernetes with such a name that hold an object, a flag or a list.
_STRUCTURES: Final = frozenset(
    {
        *("automountServiceAccountToken", "gmsaCredentialSpec", "secret", "serviceAccountToken"),
        *("tokenRequests", "webhook", "webhooks"),
    }
)


def holds_secret(step: str | int) -> bool:
    """Whether a step of a path is a key whose value is secret, of any type. A member of a list
    that has the name, such as a container, is not one.
    """
    is_key = isinstance(step, str) and not isinstance(step, ListMember)
    return is_key and step not in _STRUCTURES and names_secret(step)


@lru_cache(4_096)
def names_secret(name: str) -> bool:
    """Whether the name of a variable, an option or a key implies a secret value."""
    return bool(_IMPLIES_SECRET.search(name)) and not _MENTIONS_SECRET.search(name)


def certain(name: str, value: str) -> bool:
    """Whether the value is certainly a secret, for a finding; redaction hides more."""
    if (
        _certainly_names_secret(name)
        and "\n" not in value.strip()
        and not _NO_SECRET.fullmatch(value.strip())
    ):
        return True
    return bool(MAY_HAVE_SHAPE.search(value) and _CERTAIN_SHAPES.search(value))


@lru_cache(4_096)
def _certainly_names_secret(name: str) -> bool:
    return bool(_NAMES_SECRET.search(name))


def is_reference(value: str) -> bool:
    """Whether the value is only a reference: `$(VARIABLE)`, `${variable}`, `$variable`."""
    return bool(_REFERENCE.fullmatch(value))


def looks_random(value: Any) -> bool:
    """Whether the word is random: long, of letters and digits, with few repetitions."""
    if not isinstance(value, str) or not _RANDOM.fullmatch(value):
        return False
    if not (any(map(str.isdigit, value)) and any(map(str.isalpha, value))):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= _BITS
