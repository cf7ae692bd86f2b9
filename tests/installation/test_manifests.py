"""One install, written once: kustomize, the one file and the chart are equivalent, and generated
files are up to date.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import gitops_ds
from gitops_ds.service.settings import service
from tests import installation as deploy

pytestmark = pytest.mark.renderers
Objects = dict[tuple[str, str, str], Any]


def objects(text: str) -> Objects:
    """By kind, namespace and name."""
    bodies = [body for body in YAML(typ="safe").load_all(text) if body]
    named = {
        (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]): body
        for body in bodies
    }
    assert len(named) == len(bodies)
    return named


def normalised(text: str) -> Objects:
    """Without what differs by intent: the hash in a ConfigMap's name against a checksum in the
    pods, and how YAML is spelled.
    """
    normal: Objects = {}
    for (kind, space, name), body in objects(
        re.sub(r"\bsettings-[0-9a-z]{10}\b", "settings", text)
    ).items():
        if kind == "Deployment":
            body["spec"]["template"]["metadata"].pop("annotations", None)
        if kind == "ConfigMap":
            body["data"] = {
                key: YAML(typ="safe").load(value) for key, value in body["data"].items()
            }
        normal[kind, space, name] = body
    return normal


@pytest.mark.parametrize("power", ["observe", "pace", "full"])
def test_the_chart_renders_the_same_objects_as_kustomize(tmp_path: Path, power: str) -> None:
    settings = {
        "listen": {"address": ":8080"},
        "log": {"format": "json"},
        "repository": {"url": "https://git.example.com/fleet"},
    }
    # An observing service applies nothing and impersonates no account.
    parts = sorted(
        part.name
        for part in (deploy.DEPLOY / "rights").iterdir()
        if power != "observe" or part.name != "impersonation"
    )
    components = (*(f"rights/{part}" for part in parts), "monitoring")
    made = deploy.kustomized(deploy.overlay(tmp_path, power, json.dumps(settings), *components))
    options = (
        "createNamespace=true", "monitoring.enabled=true", f"powers={power}", "repository.url=https://git.example.com/fleet",
        *(f"rights.{part}=true" for part in parts),
    )  # fmt: skip
    assert normalised(
        deploy.templated(*(word for option in options for word in ("--set", option)))
    ) == normalised(made)


def test_the_chart_s_defaults_are_those_of_apply_k() -> None:
    assert normalised(deploy.templated("--set", "createNamespace=true")) == normalised(
        deploy.kustomized(deploy.DEPLOY)
    )


def test_the_chart_keeps_to_its_release_s_namespace() -> None:
    rendered = objects(
        deploy.templated("--namespace", "agents", "--set", "monitoring.enabled=true")
    )
    spaces = {space for _, space, _ in rendered if space}
    subjects = {who["namespace"] for body in rendered.values() for who in body.get("subjects", ())}
    assert spaces == subjects == {"agents"}
    settings = YAML(typ="safe").load(
        rendered["ConfigMap", "agents", "settings"]["data"]["settings.yaml"]
    )
    assert service.parse(settings).cluster.namespace == "agents"


@pytest.mark.parametrize(
    "options",
    [
        ("powers=all",),
        ("replica=3",),
        ("settings.controller.powers=full",),
        ("repository.url=",),
        ("rights.secrets=1",),
    ],
)
def test_the_chart_refuses_values_that_mean_nothing(options: tuple[str, ...]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        deploy.templated(*(word for option in options for word in ("--set", option)))


def test_generated_files_are_up_to_date() -> None:
    subprocess.run([deploy.ROOT / "scripts/install-manifest", "--check"], check=True)


def test_image_and_chart_have_the_version_of_the_program() -> None:
    chart = YAML(typ="safe").load((deploy.CHART / "Chart.yaml").read_text())
    install = objects((deploy.DEPLOY / "install.yaml").read_text())
    (container,) = install["Deployment", "gitops-ds", "gitops-ds"]["spec"]["template"]["spec"][
        "containers"
    ]
    version = gitops_ds.__version__
    assert (chart["version"], chart["appVersion"], container["image"]) == (
        version,
        version,
        f"gitops-ds:{version}",
    )


SETTINGS = sorted(
    str(path.relative_to(deploy.DEPLOY))
    for path in deploy.DEPLOY.rglob("settings.yaml")
    if path.parent.name != "templates"
)


@pytest.mark.parametrize("file", SETTINGS)
def test_the_service_accepts_every_settings_file(file: str) -> None:
    assert service.read(str(deploy.DEPLOY / file)).listen
