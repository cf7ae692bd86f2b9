"""`doctor` reports each check with its verdict and advice; it writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.cli.doctor import checks as doctor_checks
from gitops_ds.cli.doctor.result import CheckVerdict
from gitops_ds.core.objects import Key
from gitops_ds.kube.apimachinery import builtin_resources, kubernetes_versions
from tests import controlplane
from tests.cluster import program
from tests.docs.conftest import Run


def checks(report: str) -> dict[str, dict[str, Any]]:
    document = json.loads(report)
    assert (document["apiVersion"], document["kind"]) == ("gitops-ds.io/v1", "Diagnosis")
    return {check["name"]: check for check in document["checks"]}


def diagnosed(run: Run, *words: str, **more: Any) -> dict[str, dict[str, Any]]:
    """The checks of `doctor` by their names."""
    return checks(run("gitops-ds", "doctor", "-o", "json", *words, **more).stdout)


def repository(run: Run, tmp_path: Path) -> Path:
    """A committed repository."""
    made = tmp_path / "desk" / "repository"
    run("gitops-ds", "init", "repository")
    run("git", "init", "-q", "-b", "main", cwd=made)
    run("git", "add", ".", cwd=made)
    assert run("git", "commit", "-q", "-m", "One agent", cwd=made).returncode == 0
    return made


def test_without_a_cluster_only_the_cluster_is_bad(run: Run, tmp_path: Path) -> None:
    done = run("gitops-ds", "doctor", "-o", "json", cwd=repository(run, tmp_path))
    assert done.returncode == 1, done.stderr
    found = checks(done.stdout)
    assert [name for name, check in found.items() if check["verdict"] == "bad"] == ["cluster"]
    assert "no kubeconfig" in found["cluster"]["message"]
    assert found["cluster"]["advice"]
    assert "6 files" in found["repository"]["message"]
    assert json.loads(done.stdout)["summary"]["bad"] == 1


def test_a_line_shows_what_to_do(run: Run) -> None:
    done = run("gitops-ds", "doctor", "-q")
    assert done.returncode == 1
    assert "is not in Git; only commits are applied" in done.stdout
    assert "ok " not in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "repository:\n  url: ssh://git@git.example.com/x\n  intervall: 60s\n",
            'settings.yaml:3:3: unknown key "intervall"',
        ),
        ("cluster: {qps: 5}\n", 'settings.yaml:1:11: unknown key "qps"'),
        ("- a\n", "settings.yaml"),
    ],
)
def test_invalid_settings_are_reported_with_their_line(
    run: Run, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "desk" / "settings.yaml").write_text(text)
    done = run("gitops-ds", "doctor", "--settings", "settings.yaml", "-o", "json")
    assert done.returncode == 1
    line = checks(done.stdout)["settings"]
    assert line["verdict"] == "bad"
    assert message in line["message"]


def test_the_repository_of_the_settings_is_looked_at_with_their_credentials(
    run: Run, tmp_path: Path
) -> None:
    url = repository(run, tmp_path).as_uri()
    settings = tmp_path / "desk" / "settings.yaml"
    settings.write_text(f"repository: {{url: '{url}', branch: main, allowLocal: true}}\n")
    found = diagnosed(run, "--settings", "settings.yaml")
    assert (found["settings"]["verdict"], found["repository"]["verdict"]) == ("ok", "ok")
    token = "credentials: {tokenFile: /nowhere}"
    settings.write_text(f"repository: {{url: '{url}', branch: main, allowLocal: true, {token}}}\n")
    found = diagnosed(run, "--settings", "settings.yaml")
    assert "tokenFile: /nowhere" in found["repository"]["message"]


def test_a_repository_without_an_object_is_a_warning(run: Run, tmp_path: Path) -> None:
    made = repository(run, tmp_path)
    run("git", "rm", "-q", "-r", "agents", "shared", cwd=made)
    run("git", "commit", "-q", "-m", "No agents", cwd=made)
    line = diagnosed(run, cwd=made)["manifests"]
    assert (line["verdict"], line["message"]) == ("warning", "0 objects can be applied")


def test_what_prevents_a_deploy_is_bad(run: Run, tmp_path: Path) -> None:
    made = repository(run, tmp_path)
    assert diagnosed(run, cwd=made)["manifests"]["message"] == "2 objects can be applied"
    (made / "clusters" / "other.yaml").write_text("kubernetes: ['1.36']\n")
    (made / "agents" / "node-exporter" / "odd.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {nam: x}\n"
    )
    run("git", "add", ".", cwd=made)
    run("git", "commit", "-q", "-m", "Two clusters", cwd=made)
    unnamed = diagnosed(run, cwd=made)["manifests"]
    assert (unnamed["verdict"], "choose one with --cluster: main, other" in unnamed["message"]) == (
        "bad",
        True,
    )
    wrong = diagnosed(run, "--cluster", "main", cwd=made)["manifests"]
    assert (wrong["verdict"], "must be fixed first" in wrong["message"]) == ("bad", True)


def test_a_repository_that_is_not_there_is_bad(run: Run) -> None:
    assert diagnosed(run, "-C", "file:///nowhere")["repository"]["verdict"] == "bad"


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        (None, CheckVerdict.BAD),
        ((2, 38, 5), CheckVerdict.BAD),
        ((2, 39), CheckVerdict.OK),
        ((3, 0), CheckVerdict.OK),
    ],
)
def test_git_is_new_enough_from_2_39(
    version: tuple[int, ...] | None, verdict: CheckVerdict
) -> None:
    assert doctor_checks._git(version).verdict is verdict


def _next(minor: str, step: int) -> str:
    return f"1.{int(minor.removeprefix('1.')) + step}"


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        (f"v{_next(kubernetes_versions.OLDEST, -1)}.9", CheckVerdict.WARNING),
        (f"v{kubernetes_versions.OLDEST}.0", CheckVerdict.OK),
        (f"v{kubernetes_versions.RELEASES[kubernetes_versions.NEWEST]}", CheckVerdict.OK),
        (f"v{_next(kubernetes_versions.NEWEST, 1)}.0-alpha.1", CheckVerdict.WARNING),
    ],
)
def test_the_versions_of_kubernetes_that_were_tested_are_ok(
    version: str, verdict: CheckVerdict
) -> None:
    assert doctor_checks._version(version).verdict is verdict


def test_the_required_rights_are_in_the_namespaces_of_the_objects() -> None:
    namespace = Key("", "Namespace", "", "logging")
    applying = doctor_checks.applying([Key("apps", "DaemonSet", "logging", "x"), namespace])
    wanted = {"patch daemonsets.apps in logging", "create namespaces", "list daemonsets.apps"}
    assert wanted <= set(map(str, applying))
    pruning = set(map(str, doctor_checks.pruning([namespace])))
    assert pruning == {"delete configmaps", "delete daemonsets.apps"}
    known = builtin_resources.RESOURCES.values()
    assert all(right.resource in known for right in doctor_checks.looking())


@pytest.mark.controlplane
def test_all_is_well_on_a_real_cluster(
    run: Run, tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    there = {"KUBECONFIG": str(control_plane.kubeconfig)}
    done = run("gitops-ds", "doctor", "-o", "json", cwd=repository(run, tmp_path), **there)
    assert done.returncode == 0, done.stdout
    found = checks(done.stdout)
    assert found["cluster"]["message"].startswith(f"Kubernetes v{kubernetes_versions.NEWEST}")
    assert {check["verdict"] for name, check in found.items() if name.startswith("rights")} == {
        "ok"
    }


def test_without_pruning_only_the_deletion_of_unused_config_maps_is_needed() -> None:
    keys = [Key("apps", "DaemonSet", "a", "x"), Key("", "ConfigMap", "a", "x")]
    assert list(map(str, doctor_checks.pruning(keys))) == [
        "delete configmaps in a",
        "delete daemonsets.apps in a",
    ]
    assert list(map(str, doctor_checks.pruning(keys, prunes=False))) == ["delete configmaps in a"]
    assert doctor_checks.pruning(keys[:1], prunes=False) == ()


@pytest.mark.controlplane
def test_missing_rights_are_named(
    run: Run, tmp_path: Path, control_plane: controlplane.ControlPlane
) -> None:
    name = f"reader-{tmp_path.name.lower().replace('_', '-')}"
    restricted = program.account(control_plane, "default", name, "view", tmp_path / "kubeconfig")
    words = ("gitops-ds", "doctor", "-o", "json")
    done = run(*words, cwd=repository(run, tmp_path), KUBECONFIG=str(restricted))
    assert done.returncode == 1
    found = checks(done.stdout)
    assert "patch daemonsets.apps in node-agents" in found["rights to apply"]["message"]
    assert "ClusterRole" in found["rights to apply"]["advice"]
    assert "list nodes" in found["rights to look"]["message"]
    assert found["rights to prune"]["verdict"] == "warning"
