"""The instructions of the Containerfile."""

from __future__ import annotations

import re

from tests.controlplane import ROOT


def instructions() -> list[tuple[str, str]]:
    """The words and the rest of each line, lines joined; in place of an argument of a base image
    its default.
    """
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.MULTILINE).replace(
        "\\\n", ""
    )
    lines = [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())
    ]
    defaults = dict(rest.split("=", 1) for word, rest in lines if word == "ARG")

    def whole(word: str, rest: str) -> str:
        return (
            re.sub(r"\$\{(\w+)\}", lambda argument: defaults[argument[1]], rest)
            if word == "FROM"
            else rest
        )

    return [(word, whole(word, rest)) for word, rest in lines if word != "ARG"]
