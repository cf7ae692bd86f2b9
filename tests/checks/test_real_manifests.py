"""Vendors' manifests, where they are at hand: refused is only what no API server of today takes."""

from __future__ import annotations

from pathlib import Path

from gitops_ds.checks.engine import rule_table
from gitops_ds.checks.schema import manifests
from gitops_ds.yaml import parser

REAL = Path(__file__).resolve().parents[3] / "shared" / "real-manifests"

# Templates that are not YAML yet, and mistakes of the vendors. API versions that are gone (DS008)
# are left out: they are many.
REFUSED = {
    "aks-engine--calico-cleanup.yaml": {"DS005"},
    "azure-monitor--ama-logs.yaml": {"DS004"},
    "cloud-provider-vsphere--disable-node-deletion.yaml": {"DS004"},
    "elastic-agent--kustomize-rendered.yaml": {"DS414"},
    "fluentd--loggly-rbac.yaml": {"DS005"},
    "gpu-operator--state-driver.yaml": {"DS011", "DS415"},
    "kubernetes--konnectivity-agent-ds.yaml": {"DS001"},
    "octant--daemonset-ok.yaml": {"DS003"},
    "openshift-dns--daemonset.yaml": {"DS005"},
    "smarter-device-manager--k3s.yaml": {"DS011"},
    "smarter-device-manager--xavier-k3s.yaml": {"DS001", "DS011"},
    "tectonic--kube-flannel-vxlan.yaml": {"DS002"},
}


def refused(file: Path) -> set[str]:
    parsed = parser.read(file.name, file.read_bytes())
    found = {finding.rule for finding in parsed.findings if finding.refused}
    for one in parsed.documents:
        for body in one.value["items"] if one.value.get("kind") == "List" else [one.value]:
            shape = {complaint.rule.id for complaint in manifests.check(body) if complaint.refused}
            found |= shape or {hit.rule.id for hit in rule_table.check(body) if hit.rule.refused}
    return found - {"DS008"}


def test_a_working_manifest_is_not_refused() -> None:
    files = [path for path in sorted(REAL.glob("*")) if path.suffix in (".yaml", ".json")]
    found = {file.name: rules for file in files if (rules := refused(file))}
    assert found == {name: rules for name, rules in REFUSED.items() if (REAL / name).exists()}
