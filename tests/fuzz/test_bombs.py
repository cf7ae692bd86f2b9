"""A repository that wants to eat the machine: small files that become large, long lines, deep
nests, files that never end.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath

import pytest

from tests.fuzz import targets

# CPU seconds; what follows takes one or two on a slow machine, and would take hours without the
# limits.
PATIENCE = 60.0
SIZE = 300_000

LINES = {
    "letters": b"a",
    "dashes": b"-a",
    "list items": b"- ",
    "blanks": b" ",
    "tabs": b"\t",
    "quotes": b'"',
    "single quotes": b"'",
    "colons": b"a:",
    "spaced colons": b"a: ",
    "dots": b"a.",
    "slashes": b"a/",
    "backslashes": b"\\",
    "references": b"${a",
    "whole references": b"${a}",
    "templates": b"{{ .Values.a }}",
    "open braces": b"{",
    "open brackets": b"[",
    "flow maps": b"{a: ",
    "questions": b"? ",
    "question keys": b"?a:",
    "anchors": b"&a ",
    "aliases": b"*a ",
    "tags": b"!!a ",
    "comments": b"#",
    "ignores": b"# gitops-ds: ignore DS501 ",
    "documents": b"---\n",
    "empty items": b"-\n",
    "indents": b" \n",
    "returns": b"\r",
    "zeros": b"0",
    "surrogates": b"\\ud83d\\ude00",
    "workflow commands": b"::error::",
    "at signs": b"@a ",
    "backticks": b"`",
    "stars": b"*",
    "percent": b"%",
    "bytes that are not text": b"\xff",
    "control characters": b"\x00",
}
AGENT = b"""apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
  annotations:
    gitops-ds.io/ignore: %(text)s
    note: %(text)s
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
        - name: agent
          image: %(text)s
          command: [sh, -c, %(text)s]
          env: [{name: PASSWORD, value: %(text)s}]
"""


@pytest.mark.sampled
@pytest.mark.parametrize("name", LINES)
def test_a_file_of_one_thing_again_and_again_ends_soon(name: str) -> None:
    started = time.process_time()
    targets.holds({PurePosixPath("manifest.yaml"): LINES[name] * (SIZE // len(LINES[name]))})
    assert time.process_time() - started < PATIENCE


@pytest.mark.sampled
@pytest.mark.parametrize("name", LINES)
def test_a_text_of_one_thing_again_and_again_in_an_agent_ends_soon(name: str) -> None:
    text = json.dumps(
        (LINES[name] * (SIZE // 10 // len(LINES[name]))).decode("utf-8", "replace")
    ).encode()
    started = time.process_time()
    targets.holds(
        {
            PurePosixPath("agent.yaml"): AGENT % {b"text": text},
            PurePosixPath("gitops-ds.yaml"): b"manifests: ['*.yaml']\n",
        }
    )
    assert time.process_time() - started < PATIENCE


@pytest.mark.sampled
@pytest.mark.parametrize("depth", [60, 70, 400, 900, 5000, 100_000])
def test_nests_are_refused_or_read(depth: int) -> None:
    long = "k" * 1200
    for data in (
        "[" * depth + "]" * depth,
        '{"a":' * depth + "1" + "}" * depth,
        f'{{"{long}": 1, "kind": "ConfigMap", "apiVersion": "v1", "metadata": {{"name": "a"}}, '
        '"data": ' + '{"a":' * depth + "1" + "}" * depth + "}",
        "".join("  " * min(level, 2000) + "a:\n" for level in range(min(depth, 3000))),
        "- " * depth + "a",
        "a: &a\n" + "".join(f"b{level}: &b{level} [*a]\n" for level in range(min(depth, 3000))),
    ):
        targets.holds({PurePosixPath("manifest.yaml"): data.encode()})


@pytest.mark.slow
def test_ten_thousand_small_bombs_stay_small() -> None:
    small = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a%d}}\ndata:\n  a: &a "
        f"[{'x,' * 90}]\n  b: [{'*a,' * 90}]\n"
    )
    started = time.process_time()
    result = targets.checked(
        {PurePosixPath(f"{number}.yaml"): (small % number).encode() for number in range(1000)}
    )
    assert time.process_time() - started < PATIENCE
    assert result.findings
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # kibibytes


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The real command, with a bound on its memory."""
    limit = 1 << 30
    return subprocess.run(
        [sys.executable, "-m", "gitops_ds", "check", str(directory), *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )


def test_files_that_never_end_and_links_that_lead_out_are_not_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text("kind: Secret-of-another\n")
    inside = tmp_path / "repository"
    (inside / "folder").mkdir(parents=True)
    os.mkfifo(inside / "pipe.yaml")
    (inside / "zero.yaml").symlink_to("/dev/zero")
    (inside / "out.yaml").symlink_to(outside)
    (inside / "loop.yaml").symlink_to("loop.yaml")
    (inside / "up").symlink_to("..")
    (inside / "folder" / "all").symlink_to("/")
    done = run(inside, "-o", "json")
    assert done.returncode == 1, done.stderr
    rules = {finding["file"]: finding["rule"] for finding in json.loads(done.stdout)["findings"]}
    assert rules == {
        "pipe.yaml": "SRC004",
        "zero.yaml": "SRC001",
        "out.yaml": "SRC001",
        "loop.yaml": "SRC001",
    } | {name: "SRC001" for name in rules if name in ("up", "folder/all")}
    assert "another" not in done.stdout + done.stderr


def test_a_sparse_file_of_a_terabyte_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(1 << 40)
    done = run(tmp_path)
    assert done.returncode == 1, done.stderr
    assert "SRC003" in done.stdout


@pytest.mark.slow
def test_more_files_than_are_read(tmp_path: Path) -> None:
    for number in range(10_001):
        (tmp_path / f"{number}.yaml").touch()
    done = run(tmp_path)
    assert done.returncode == 1, done.stderr
    assert "SRC005" in done.stdout
