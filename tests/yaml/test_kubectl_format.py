"""YAML as kubectl prints it, compared with the real kubectl."""

from __future__ import annotations

import json
import random
import subprocess
from typing import Any

import pytest

from gitops_ds.yaml import kubectl_format
from tests import controlplane
from tests.plan.world import daemonset

TEXTS = (
    r"a|yes|Yes|no|on|OFF|y|N|true|null|~|<<|=|0|012|0o7|0x1F|0b1|1_000|1.5|.5|1e3|1.|.inf|.nan|-|--"
    r"|-a|+1|12:30:45|1:60|2026-01-01|2026-01-01T00:00:00Z|2026-1-1 10:00:00|v1.9.1|a: b|a:b|a #b"
    r"|a#b|#a|&a|*a|!a|%a|@a|`a|{a}|[a]|a,b|'a'|a\b| a|a |é☺|über|😀|--web.listen=:9100"
    r"|http://[::1]:80/|?|? a|:|,|>|>a||"
    r"|No|TRUE| |0644|0o17|2027-01-01|- a|a:|:a|---|...|#|https://x:80/y|é"
)
LINES = (
    *("a\nb", "a\nb\n", "\na", "a\n\n", "a\n\n\n", " a\nb", "a \nb", "a\n b\n", "\n", "a\r\nb"),
    *("a\t\nb ", "a\n---\nb\n", "k\n  indented: |\n    text\n", "a\u2028b\nc", "😀\n😀"),
    *("\t", "a\tb", "\xa0", "\ufeff", "\x00", "\x07"),
)


def texts() -> list[str]:
    found = [*TEXTS.split("|"), *LINES, '{"a": [1]}', '"a"', "word " * 60, "word-" * 60]
    chance = random.Random(7)
    for _ in range(600):
        letters = chance.choices("aZ09 .:-_#'\"\\/{}[],&*?|<>=!%@`~\n\té☺", k=chance.randint(1, 8))
        found.append("".join(letters))
    return found


def keys() -> list[str]:
    """Numbers are at the end: behind other ones, the order in go-yaml depends on all keys."""
    chance = random.Random(11)
    names = []
    for _ in range(400):
        word = "".join(chance.choices("abAZ./-_", k=chance.randint(1, 5)))
        names.append(word + chance.choice(["", "", "1", "2", "9", "10", "19", "100", "101"]))
    return [*names, "1", "9", "10", "a.b/c", "x" * 140]


def objects() -> list[dict[str, Any]]:
    body = daemonset("agent")
    body["spec"]["template"]["spec"]["containers"][0]["args"] = texts()
    data = dict(zip(keys(), texts(), strict=False))
    return [
        body,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data},
    ]


@pytest.mark.controlplane
@pytest.mark.parametrize("body", objects(), ids=lambda body: body["kind"])
def test_the_output_is_that_of_kubectl(body: dict[str, Any]) -> None:
    kubectl = controlplane.programs() / "kubectl"

    def printed(output: str) -> str:
        command = (kubectl, "annotate", "--local", "-f", "-", "a=b", "-o", output)
        run = subprocess.run(
            command, input=json.dumps(body), capture_output=True, text=True, check=True
        )
        return run.stdout

    assert kubectl_format.dump(json.loads(printed("json"))) == printed("yaml")


def test_an_empty_collection_and_numbers() -> None:
    value = {"b": [], "a": {}, "c": 1.5, "d": None, "e": [True, -3]}
    assert kubectl_format.dump(value) == "a: {}\nb: []\nc: 1.5\nd: null\ne:\n- true\n- -3\n"
