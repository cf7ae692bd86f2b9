"""What the pages don't show of the rules about containers and hosts: references to images, what is
a secret, how loud for whom.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.checks.advice import host_access, images, unwanted_content
from gitops_ds.checks.advice.images import Reference
from gitops_ds.checks.engine import rule_table
from gitops_ds.model.finding import Severity

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agent", Reference("", "agent", "", "")),
        ("agent:1", Reference("", "agent", "1", "")),
        ("team/agent:1", Reference("", "team/agent", "1", "")),
        ("docker.io/agent", Reference("docker.io", "agent", "", "")),
        ("localhost/agent", Reference("localhost", "agent", "", "")),
        ("registry:5000/agent", Reference("registry:5000", "agent", "", "")),
        ("registry:5000/team/agent:1", Reference("registry:5000", "team/agent", "1", "")),
        (f"agent@{DIGEST}", Reference("", "agent", "", DIGEST)),
        (f"quay.io:443/a/b/c:1.2@{DIGEST}", Reference("quay.io:443", "a/b/c", "1.2", DIGEST)),
        ("[2001:db8::1]:5000/agent:1", Reference("[2001:db8::1]:5000", "agent", "1", "")),
    ],
)
def test_a_reference_is_read_by_the_grammar_of_registries(text: str, expected: Reference) -> None:
    assert images.parse(text) == expected


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": {"spec": spec}}}


def with_env(name: str, value: str) -> dict[str, Any]:
    return pod(containers=[{"name": "agent", "env": [{"name": name, "value": value}]}])


# Made up, and put together here so that no scanner takes them for real ones.
SHAPED = [
    "AKIA" + "Q" * 16,
    "ghp_" + "a1" * 18,
    "glpat-" + "x1" * 10,
    "xoxb-" + "1234567890",
    "-----BEGIN " + "RSA PRIVATE KEY-----\nMII",
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PASSWORD", "correct horse"),
        ("DB_PASSWD", "hunter22"),
        ("apiKey", "0123abcd"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
        ("auth-token", "abcdefgh"),
        ("UPSTREAM", "amqp://agent:s3cret@queue:5672"),
        *(("ANYTHING", value) for value in SHAPED),
    ],
)
def test_a_secret_is_found_and_never_repeated(name: str, value: str) -> None:
    argument = pod(initContainers=[{"name": "init", "command": ["run", f"--{name}={value}"]}])
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {name: value}}
    for body in (with_env(name, value), argument, config):
        (violation,) = unwanted_content.no_secrets(body)
        path, message = violation.path, violation.message
        assert value not in message
        assert value not in str(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PASSWORD", ""),
        ("PASSWORD", "$(FROM_SECRET)"),
        ("PASSWORD", "${FROM_SECRET}"),
        ("PASSWORD", "{{ .Password }}"),
        ("PASSWORD", "<your password>"),
        ("PASSWORD_FILE", "correct horse"),
        ("SECRET_NAME", "agent-credentials"),
        ("TOKEN_TTL", "3600s"),
        ("TOKEN", "/var/run/secrets/token"),
        ("TOKEN", "true"),
        ("PUBLIC_KEY", "ssh-ed25519 AAAA"),
        ("URL", "https://logs.example.com:443/a@b"),
        ("URL", "https://${USER}:${PASSWORD}@logs.example.com"),
        ("MONKEY", "banana"),
        ("COMPASS", "north-west"),
    ],
)
def test_a_name_that_only_mentions_a_secret_is_not_reported(name: str, value: str) -> None:
    assert not list(unwanted_content.no_secrets(with_env(name, value)))


SENSITIVE = (
    "/",
    "//",
    "/etc/",
    "/etc/../etc/shadow",
    "/proc",
    "/var/lib/kubelet/pki",
    "/run/crio/crio.sock",
)
OTHERS = (
    "/var/log",
    "/etcetera",
    "/opt/cni/bin",
    "/etc/localtime",
    "/var/lib/kubelet/plugins_registry/",
)


@pytest.mark.parametrize("path", [*SENSITIVE, *OTHERS])
def test_a_sensitive_path_is_one_however_it_is_written(path: str) -> None:
    body = pod(volumes=[{"name": "a", "hostPath": {"path": path}}], containers=[{"name": "a"}])
    assert bool(list(host_access.sensitive_paths(body))) is (path in SENSITIVE)


def loud(agent_class: str, body: dict[str, Any], profile: str = "") -> dict[str, Severity]:
    annotated = {**body, "metadata": {"annotations": {"gitops-ds.io/class": agent_class}}}
    return {hit.rule.id: hit.severity for hit in rule_table.check(annotated, profile)}


PRIVILEGED = pod(
    hostNetwork=True,
    hostIPC=True,
    containers=[{"name": "agent", "securityContext": {"privileged": True}}],
)


@pytest.mark.parametrize(
    ("agent_class", "profile", "expected"),
    [
        ("", "", {"DS501": "warning", "DS502": "warning", "DS504": "warning"}),
        ("", "strict", {"DS501": "error", "DS502": "warning", "DS504": "error"}),
        ("cni", "", {"DS501": "warning", "DS502": "info", "DS504": "error"}),
        ("gpu", "", {"DS501": "warning", "DS502": "warning", "DS504": "error"}),
        ("general", "", {"DS501": "error", "DS502": "warning", "DS504": "error"}),
    ],
)
def test_how_loud_a_rule_is_depends_on_the_class(
    agent_class: str, profile: str, expected: dict[str, str]
) -> None:
    findings = loud(agent_class, PRIVILEGED, profile)
    assert {rule: findings[rule].value for rule in expected} == expected
