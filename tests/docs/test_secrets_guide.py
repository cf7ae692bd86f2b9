"""The objects of the guide to secrets are valid for the operators' own definitions, and applied."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from tests import controlplane, definitions
from tests.docs import pages
from tests.docs.conftest import Run
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.controlplane, pytest.mark.renderers]
SPACE = "secrets-guide"


def files() -> Mapping[str, str]:
    """The files of the page, with a namespace of their own."""
    return {
        block.file: block.text.replace("namespace: logging", f"namespace: {SPACE}")
        for section in pages.sections(ROOT / "docs/guides/secrets.md")
        for block in section.blocks
        if block.file
    }


def test_external_and_sealed_secrets_are_applied(
    run: Run, tmp_path: Path, api_server: controlplane.ControlPlane
) -> None:
    definitions.define(
        api_server,
        "external-secrets.io_externalsecrets.yaml",
        "bitnami.com_sealedsecrets.yaml",
    )
    api_server.kubectl("create", "namespace", SPACE)
    desk = tmp_path / "desk"
    for name, text in files().items():
        # a folder of its own for each section: both have the same name
        path = desk / PurePosixPath(name.replace("sealed/agents/shipper", "agents/sealed"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "Secrets")):
        assert run("git", *words).returncode == 0
    where = {"KUBECONFIG": str(api_server.kubeconfig)}
    applied = run("gitops-ds", "apply", "--state-namespace", SPACE, **where)
    assert applied.returncode == 0, applied.stderr
    found = api_server.kubectl(
        *("-n", SPACE, "get", "externalsecret,sealedsecret,daemonset", "-o", "json")
    )
    kinds = {item["kind"] for item in json.loads(found)["items"]}
    assert kinds == {"ExternalSecret", "SealedSecret", "DaemonSet"}


def test_a_typo_in_a_reference_is_refused_by_the_definition(
    api_server: controlplane.ControlPlane,
) -> None:
    definitions.define(api_server, "external-secrets.io_externalsecrets.yaml")
    body = files()["agents/shipper/companions/secret.yaml"].replace("remoteRef", "remotRef")
    with pytest.raises(subprocess.CalledProcessError):
        api_server.kubectl(
            *("create", "--dry-run=server", "--validate=strict", "-n", SPACE, "-f", "-"), stdin=body
        )
