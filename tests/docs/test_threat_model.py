"""SECURITY.md states what runs by default, and that is so."""

from __future__ import annotations

from gitops_ds.service.settings import service
from tests.docs.pages import ROOT


def test_the_programs_that_the_service_runs_on_a_repository_are_those_of_the_threat_model() -> None:
    text = " ".join((ROOT / "SECURITY.md").read_text().split())
    allowed = service.Service().allowed
    assert (allowed.helm, allowed.kustomize, allowed.network) == (True, True, False)
    assert "the service and the commands that apply run helm and kustomize by default" in text
    none = service.parse({"render": {"allow": []}}).allowed
    assert (none.helm, none.kustomize, none.network) == (False, False, False)
    assert "`render.allow: []` disables both" in text
