"""`gitops-ds diff` without a cluster: names of files, programs, exit codes, and secret values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitops_ds.cli.diff import live_diff
from gitops_ds.cli.diff.live_diff import ObjectDiff
from gitops_ds.core.objects import key_of
from tests.cluster import program
from tests.cluster.program import Desk
from tests.plan.world import config_map, daemonset

FILE = "apps.v1.DaemonSet.default.agent"


@pytest.fixture
def at(tmp_path: Path) -> Desk:
    made = program.desk(tmp_path, tmp_path / "kubeconfig")
    made.commit("An agent", agent=daemonset())
    return made


def snapshot(at: Desk, *bodies: dict[str, Any]) -> str:
    """A file with these objects, as gitops-ds applied them."""
    file = at.directory / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}))
    return str(file)


def test_a_new_object_is_a_diff_from_an_empty_file(at: Desk) -> None:
    shown = at.run("diff", "--simulate", "3")
    assert shown.code == 1, shown.err
    lines = shown.out.splitlines()
    assert re.fullmatch(rf"diff -u -N \S*/LIVE-\S+/{FILE} \S*/MERGED-\S+/{FILE}", lines[0])
    assert re.match(rf"--- \S*/LIVE-\S+/{FILE}\t", lines[1])
    assert re.match(rf"\+\+\+ \S*/MERGED-\S+/{FILE}\t", lines[2])
    assert lines[3].startswith("@@ -0,0 +1,")
    assert lines[4] == "+apiVersion: apps/v1"
    assert all(line.startswith("+") for line in lines[4:])


def test_the_exit_code_is_0_without_differences_and_1_with_one(at: Desk) -> None:
    created = at.run("diff", "--simulate", "3").out.splitlines()[4:]
    body = YAML(typ="safe").load("".join(f"{line[1:]}\n" for line in created))
    live = snapshot(at, body)
    same = at.run("diff", "--snapshot", live)
    assert (same.code, same.out) == (0, ""), same.err
    at.commit("Another image", agent=daemonset(image="registry.example.com/agent:2"))
    other = at.run("diff", "--snapshot", live)
    assert other.code == 1
    changed = [line for line in other.out.splitlines() if re.match(r"[-+] ", line)]
    assert changed == [
        "-      - image: registry.example.com/agent:1",
        "+      - image: registry.example.com/agent:2",
    ]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("variable", "code", "shown"),
    [
        ("echo -n --a=1 $(id) b;c", 0, r"\S*/LIVE-\S+ \S*/MERGED-\S+ -n --a=1\n"),
        ("diff -N -q", 1, r"Files \S+ and \S+ differ\n"),
        ("false", 1, ""),
        ("diff --nonsense", 2, ""),
    ],
)
def test_kubectl_external_diff_is_used(at: Desk, variable: str, code: int, shown: str) -> None:
    at.environment["KUBECTL_EXTERNAL_DIFF"] = variable
    done = at.run("diff", "--simulate", "3")
    assert done.code == code
    assert re.fullmatch(shown, done.out)


def test_a_missing_program_is_a_usage_error(at: Desk) -> None:
    at.environment["KUBECTL_EXTERNAL_DIFF"] = "no-such-program -u"
    done = at.run("diff", "--simulate", "3")
    assert (done.code, done.out) == (2, "")
    assert "no-such-program" in done.err


def test_a_commit_that_cannot_be_deployed_is_not_a_difference(at: Desk) -> None:
    at.write("agent.yaml", {**daemonset(), "kind": "DeamonSet"})
    done = at.run("diff", "--simulate", "3")
    assert (done.code, done.out) == (3, "")
    assert "must be fixed first" in done.err


def with_password(value: str, **more: Any) -> dict[str, Any]:
    body = daemonset(**more)
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "DB_PASSWORD", "value": value}, {"name": "A", "value": "b"}]
    return body


def test_a_changed_secret_value_is_marked_and_an_equal_one_hidden() -> None:
    before, after = with_password("first-pass"), with_password("second-pass")
    shown = live_diff.masked(ObjectDiff(key_of(before), before, after))
    text = json.dumps([shown.live, shown.merged])
    assert "-pass" not in text
    assert "*** (before)" in json.dumps(shown.live)
    assert "*** (after)" in json.dumps(shown.merged)
    same = live_diff.masked(ObjectDiff(key_of(before), before, before))
    assert same.live == same.merged
    assert "-pass" not in json.dumps([same.live, same.merged])


def test_the_data_of_a_secret_is_masked_as_kubectl_does() -> None:
    def secret(**data: str) -> dict[str, Any]:
        return {**config_map("keys"), "kind": "Secret", "data": data}

    before, after = secret(a="eA==", b="eA==", c="eA=="), secret(a="eA==", b="eQ==", d="eg==")
    shown = live_diff.masked(ObjectDiff(key_of(before), before, after))
    assert shown.live is not None
    assert shown.merged is not None
    assert shown.live["data"] == {"a": "***", "b": "*** (before)", "c": "***"}
    assert shown.merged["data"] == {"a": "***", "b": "*** (after)", "d": "***"}


def test_secret_values_are_shown_on_request_only(at: Desk) -> None:
    at.commit("A password", agent=with_password("first-pass"))
    assert "first-pass" not in at.run("diff", "--simulate", "3").out
    assert "first-pass" in at.run("diff", "--simulate", "3", "--show-secrets").out


def test_an_object_of_the_core_group_has_no_group_in_its_file() -> None:
    body = config_map("settings", "logging")
    assert ObjectDiff(key_of(body), body, None).file == "v1.ConfigMap.logging.settings"


def test_a_plan_as_yaml_is_its_json(at: Desk) -> None:
    shown = at.run("plan", "--simulate", "3", "-o", "yaml")
    assert YAML(typ="safe").load(shown.out) == at.run("plan", "--simulate", "3", "-o", "json").json
