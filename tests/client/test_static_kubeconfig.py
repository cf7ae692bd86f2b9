"""Kubeconfigs with static credentials are read without the official package, with its result; all
others are left to it.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.kube.client import kubeconfig, static_kubeconfig

PEM = "-----BEGIN CERTIFICATE-----\nZoë's\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()
CLUSTER = {"server": "https://cluster.example:6443/"}


def write(
    directory: Path,
    cluster: Any,
    user: Any,
    *,
    name: str = "one",
    more: Mapping[str, Any] | None = None,
) -> None:
    """A kubeconfig with one context, in the file of its name; beside it a PEM file."""
    (directory / "pem").write_text(PEM)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": f"c-{name}", "cluster": cluster}],
        "users": [{"name": f"u-{name}", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": f"c-{name}", "user": f"u-{name}"}}],
        **(more or {}),
    }
    (directory / name).write_text(json.dumps(content, indent=1))


STATIC: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (CLUSTER, {}),
    (CLUSTER, {"token": "t"}),
    ({"server": "http://cluster.example"}, {"token": "t", "client-certificate": "nowhere"}),
    ({**CLUSTER, "certificate-authority-data": DATA}, {"token": " t\n"}),
    ({**CLUSTER, "certificate-authority": "pem"}, {"token": "t"}),
    ({**CLUSTER, "certificate-authority": "../nowhere/../one/pem"}, {"token": "t"}),
    (
        {**CLUSTER, "insecure-skip-tls-verify": True, "tls-server-name": "other.example"},
        {"client-certificate-data": DATA, "client-key-data": DATA},
    ),
    (
        {**CLUSTER, "insecure-skip-tls-verify": False, "extensions": [{"name": "minikube"}]},
        {"client-certificate": "pem", "client-key": "pem", "client-key-data": DATA},
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("cluster", "user"), STATIC)
def test_static_credentials_are_those_that_the_official_package_finds(
    cluster: dict[str, Any], user: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    write(tmp_path / "one", cluster, user)
    file = str(tmp_path / "one" / "one")
    expected = kubeconfig.of_file(file, None)
    assert static_kubeconfig.entry(file, None) == expected
    assert static_kubeconfig.entry(file, "one") == expected
    assert static_kubeconfig.current_context(file) == kubeconfig.current_context(file) == "one"


UNUSUAL: list[tuple[Any, Any]] = [
    ({}, {"token": "t"}),
    ({"server": ""}, {"token": "t"}),
    ({**CLUSTER, "proxy-url": "http://proxy.example:3128"}, {"token": "t"}),
    ({**CLUSTER, "insecure-skip-tls-verify": "yes"}, {"token": "t"}),
    ({**CLUSTER, "certificate-authority": "missing"}, {"token": "t"}),
    ({**CLUSTER, "certificate-authority": "."}, {"token": "t"}),
    ({**CLUSTER, "certificate-authority-data": "A"}, {"token": "t"}),
    (None, {"token": "t"}),
    (CLUSTER, None),
    (CLUSTER, {"token": ""}),
    (CLUSTER, {"token": 1}),
    (CLUSTER, {"token": "t", "tokenFile": "token"}),
    (CLUSTER, {"username": "me", "password": "p"}),
    (CLUSTER, {"token": "t", "as": "another"}),
    (CLUSTER, {"exec": {"command": "plugin"}}),
    (CLUSTER, {"auth-provider": {"name": "oidc"}}),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("cluster", "user"), UNUSUAL)
def test_other_kubeconfigs_are_left_to_the_official_package(
    cluster: Any, user: Any, tmp_path: Path
) -> None:
    write(tmp_path, cluster, user)
    assert static_kubeconfig.entry(str(tmp_path / "one"), None) is None


TEXTS = [
    "",
    "a: b: c",
    "[]",
    "{current-context: a, contexts: 1}",
    "current-context: 1",
    "current-context: ''",
    "a: yes\n",
    "a: 1\na: 2",
]


@pytest.mark.sampled
@pytest.mark.parametrize("text", TEXTS)
def test_files_of_unusual_content_are_left_to_the_official_package(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text(text)
    file = str(tmp_path / "one")
    assert static_kubeconfig.entry(file, None) is None
    assert static_kubeconfig.current_context(file) == ("a" if "context: a" in text else None)


@pytest.mark.parametrize("absent", ["clusters", "users", "contexts"])
def test_an_incomplete_file_is_left_to_the_official_package(absent: str, tmp_path: Path) -> None:
    write(tmp_path, CLUSTER, {"token": "t"}, more={absent: [{"name": 1}]})
    assert static_kubeconfig.entry(str(tmp_path / "one"), None) is None
    assert static_kubeconfig.entry(str(tmp_path / "one"), "another") is None


def test_of_several_files_the_first_name_and_the_last_current_context_count(
    tmp_path: Path,
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, {**CLUSTER, "certificate-authority": "pem"}, {"token": name})
        (tmp_path / name / "pem").write_text(name)
    write(tmp_path, {"server": "https://other.example"}, {"token": "other"}, name="other")
    every = ("first/one", "missing", "second/one", "other")
    files = os.pathsep.join(str(tmp_path / name) for name in every)
    for context in (None, "one", "other"):
        expected = kubeconfig.of_file(files, context)
        assert static_kubeconfig.entry(files, context) == expected
    assert static_kubeconfig.current_context(files) == kubeconfig.current_context(files) == "other"


def test_a_proxy_of_the_environment_is_left_to_the_official_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, CLUSTER, {"token": "t"})
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("no_proxy", "*.example")
    assert static_kubeconfig.entry(str(tmp_path / "one"), None) is not None
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert static_kubeconfig.entry(str(tmp_path / "one"), None) is None
