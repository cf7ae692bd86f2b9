"""Texts without possible secrets, by their form or by the name before them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gitops_ds.core.redaction.patterns import (
    HIDDEN,
    MAY_HAVE_SHAPE,
    SHAPES,
    is_reference,
    names_secret,
)

Take = Callable[[str], None]

_NAME: Final = r"[A-Za-z0-9_.-]+"
# without it a search starts at each letter of a long word
_BEGINS: Final = r"(?<![A-Za-z0-9_.-])"
# `user@` alone may be a token; git@ is the login of every forge.
_LOGIN: Final = re.compile(r"(?<=://)(?!git@)[^\s/@\"'\\?#]+(?=@)")
_SCHEME: Final = r"\b(Bearer|Basic|Negotiate|Digest)(\s+)"
_BEARER: Final = re.compile(rf"{_SCHEME}[A-Za-z0-9._~+/=-]{{6,}}", re.IGNORECASE)
# In a sentence the next word is not a secret: `basic authentication`.
_BEARER_IN_WORDS: Final = re.compile(
    rf"{_SCHEME}(?-i:(?=\S*[^a-z\s]))[A-Za-z0-9._~+/=-]{{6,}}", re.IGNORECASE
)
# Webhooks of chat rooms: the address itself is the credential.
_SENDER: Final = re.compile(
    r"(?<=://)(hooks\.[^\s/\"'\\]+|[^\s/\"'\\]+/(?:api/webhooks|services|webhookb2?))/[^\s\"'\\]+"
)
_ASSIGNED: Final = re.compile(
    rf"{_BEGINS}(?P<name>{_NAME})(?P<is>\s*:?=\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s&;,\"'\\]+)"
)
_QUOTED: Final = re.compile(
    rf"(?<!\\)(?P<open>\\*[\"'])(?P<name>{_NAME})(?P<is>\\*[\"']\s*:\s*\\*[\"'])(?P<value>[^\"'\\]+)"
)
_LINE: Final = re.compile(
    rf"(?P<open>^|\\n|[{{,])(?P<indent>[ \t-]*)(?P<name>{_NAME})(?P<is>:[ "
    rf"\t]+)(?P<value>[^\n\\,}}]+)",
    re.MULTILINE,
)
# In the middle of a sentence: `login failed, password: X`. Most words there are not secret
# (`secret: not found`), so a message hides only one with digits and letters.
_SENTENCE: Final = re.compile(
    rf"{_BEGINS}(?P<name>{_NAME})(?P<is>:[ \t]+)(?P<value>\"[^\"]+\"|'[^']+'|[^\s\"',;]+)"
)
_SENTENCE_IN_WORDS: Final = re.compile(
    rf"{_BEGINS}(?P<name>{_NAME})(?P<is>:[ \t]+[\"']?)"
    r"(?P<value>(?=[^\s0-9]*[0-9])(?=[^\sA-Za-z]*[A-Za-z])[^\s\"',;/]{6,})"
)
_FLAG: Final = re.compile(
    rf"{_BEGINS}(?P<name>--?{_NAME})(?P<is>\s+)(?P<value>[^\s\"'\\-][^\s\"'\\]*)"
)
# In a sentence the word after an option is not its value: `--token must be …`.
_FLAG_IN_WORDS: Final = re.compile(
    rf"{_BEGINS}(?P<name>--?{_NAME})(?P<is>\s+)(?P<value>(?=\S*[0-9])[^\s\"'\\-][^\s\"'\\]*)"
)
# A password attached to the option: any word with these programs
# (https://dev.mysql.com/doc/refman/8.4/en/password-security-user.html); with others a word of at
# least one digit and one letter without `=`, `/` and `:`, which excludes ports, paths and mappings.
_TAKES_ATTACHED: Final = re.compile(r"(?<![\w.-])(?:mysql\w*|mariadb[\w-]*|sshpass)(?![\w-])")
_ATTACHED: Final = re.compile(r"(?<![^\s\"'(])-p(?P<value>[^\s\"'\\]+)")
_LIKELY_ATTACHED: Final = re.compile(
    r"(?<![^\s\"'(])-p(?P<value>(?=[^\s0-9]*[0-9])(?=[^\sA-Za-z]*[A-Za-z])[^\s\"'\\=/:]{6,})"
    r"(?![^\s\"')])"
)
# Each with a part that its matches have.
_IN_CONTENT: Final = (
    (re.compile("="), _ASSIGNED),
    (re.compile("[\"']"), _QUOTED),
    (re.compile(":[ \t]"), _LINE),
    (re.compile("-"), _FLAG),
)
_IN_WORDS: Final = (
    (re.compile("="), _ASSIGNED),
    (re.compile("[\"']"), _QUOTED),
    (re.compile(":[ \t]"), _SENTENCE_IN_WORDS),
    (re.compile("-"), _FLAG_IN_WORDS),
)
# A part of each pattern above; most values of objects have none. In two patterns, because a search
# for alternatives is fast only if each starts with a letter.
_SIGN: Final = re.compile(r"[\s\"'=]")
_PART: Final = re.compile(rf"://|-p|{MAY_HAVE_SHAPE.pattern}")
_NOTHING: Final = frozenset({"true", "false", "null", "{}", "[]"})


def may_hide(text: str) -> bool:
    """Whether a text can have a secret, by its characters."""
    return bool(_SIGN.search(text) or _PART.search(text))


def shapes(text: str) -> str:
    """The text without keys, tokens and passwords in addresses, by their form."""
    return SHAPES.sub(HIDDEN, text) if MAY_HAVE_SHAPE.search(text) else text


def words(text: str) -> str:
    """A message without the secrets that it quotes: of an event, a log line, an API server."""
    return _hidden(text, _forget, _BEARER_IN_WORDS, _IN_WORDS)


def content(text: str, take: Take | None = None) -> str:
    """A value of an object, a file or a foreign log without secrets, also those of YAML keys and
    command lines. `take` gets the hidden values.
    """
    return _hidden(text, take or _forget, _BEARER, _IN_CONTENT)


def foreign(text: str, take: Take | None = None) -> str:
    """`content` of unknown origin, such as the message of an event: also what follows a name in the
    middle of a sentence, with false positives. `take` gets those with a digit only: an ordinary
    word would be hidden everywhere.
    """
    taking = take or _forget

    def named(match: re.Match[str]) -> str:
        value = match["value"].strip("\"'")
        if not names_secret(match["name"]) or HIDDEN in value or is_reference(value):
            return match.group()
        is_word = value in _NOTHING or (value.isalpha() and value.islower())
        if is_word and "pass" not in match["name"].lower():  # `secret: nothing is …`
            return match.group()
        if any(map(str.isdigit, value)):
            taking(value)
        return match.group()[: match.start("value") - match.start()] + HIDDEN

    return _SENTENCE.sub(named, content(text, take))


def takes_attached_password(text: str) -> bool:
    """Whether a command line names a program with the password in the word of an option: `-pX`."""
    return bool(_TAKES_ATTACHED.search(text))


def origin(url: str) -> str:
    """The scheme and host of an address that is itself a secret, such as the webhook of a chat
    room.
    """
    scheme, separator, rest = url.partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{host}/{HIDDEN}" if separator else HIDDEN


def _forget(_: str) -> None:
    """Ignores a hidden value."""


def _hidden(
    text: str,
    take: Take,
    bearer: re.Pattern[str],
    after_a_name: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...],
) -> str:
    if not may_hide(text):
        return text

    def named(match: re.Match[str]) -> str:
        value = match["value"].strip("\"' ")
        if (
            not names_secret(match["name"])
            or not value
            or HIDDEN in value
            or value in _NOTHING
            or is_reference(value)
        ):
            return match.group()
        take(value)
        return match.group()[: match.start("value") - match.start()] + HIDDEN

    def login(match: re.Match[str]) -> str:
        take(match.group().rpartition(":")[2])
        return HIDDEN

    def shape(match: re.Match[str]) -> str:
        take(match.group())
        return HIDDEN

    def attached(match: re.Match[str]) -> str:
        value = match["value"]
        if is_reference(value) or HIDDEN in value:
            return match.group()
        take(value)
        return f"-p{HIDDEN}"

    if "-p" in text:
        pattern = _ATTACHED if takes_attached_password(text) else _LIKELY_ATTACHED
        text = pattern.sub(attached, text)
    if "://" in text:
        text = _LOGIN.sub(login, text) if "@" in text else text
        text = _SENDER.sub(lambda match: f"{match[1]}/{HIDDEN}", text)
    if MAY_HAVE_SHAPE.search(text):
        text = SHAPES.sub(shape, text)
    if " " in text:
        text = bearer.sub(lambda match: f"{match[1]}{match[2]}{HIDDEN}", text)
    for part, pattern in after_a_name:
        if part.search(text):
            text = pattern.sub(named, text)
    return text
