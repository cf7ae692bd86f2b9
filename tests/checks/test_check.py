"""Manifests against schemas and rules: goldens in cases/, one folder a theme; places lead to the
line that must change.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from gitops_ds.checks.engine import check as validation
from gitops_ds.checks.engine import rule, rule_table
from gitops_ds.core.finding import Finding, Severity, advice
from gitops_ds.core.objects import Body, Digest, key_of
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts, Manifest, Origin, Pointer
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.yaml import parser
from tests import goldens

CASES = Path(__file__).parent / "cases"
# Advice is left out of the cases, because their manifests are short and would violate many
# rules; test_rule_pages.py covers it.
ADVICE = {rule.id for rule in rule_table.RULES if not rule.refused}


def checked(data: bytes, versions: tuple[str, ...] = (), file: str = "input.yaml") -> list[Finding]:
    manifests = {}
    parsed = parser.read(file, data)
    for one in parsed.documents:
        key = key_of(one.value)
        manifests[key] = Manifest(key, one.value, Digest(""), Origin(Pointer(file, one.index, ())))
    bundle = Bundle(None, ClusterFacts(kubernetes=versions), manifests)
    return [
        *parsed.findings,
        *validation.check(bundle, SourceTree(None, {PurePosixPath(file): data})),
    ]


def line(finding: Finding) -> str:
    weight = "blocking" if finding.refused else finding.severity.value
    return f"{finding.place} {finding.rule} {weight}: {finding.message}\n"


@pytest.mark.parametrize("case", sorted(CASES.iterdir()), ids=lambda path: path.name)
def test_findings(case: Path) -> None:
    data = (case / "input.yaml").read_bytes()
    first = data.decode().splitlines()[0]
    versions = (
        tuple(first.removeprefix("# kubernetes: ").split(", "))
        if first.startswith("# kubernetes")
        else ()
    )
    reported = [one for one in checked(data, versions) if one.refused or one.rule not in ADVICE]
    goldens.check(case / "findings.txt", "".join(line(one) for one in reported))


def test_every_rule_of_the_api_server_has_a_case() -> None:
    goldens_text = "".join(path.read_text() for path in CASES.glob("*/findings.txt"))
    assert [
        rule.id
        for rule in rule_table.RULES
        if rule.on and rule.refused and f" {rule.id} blocking" not in goldens_text
    ] == []


def test_rows_of_one_rule_are_of_different_weight() -> None:
    assert len({(rule.id, rule.refused, rule.severity) for rule in rule_table.RULES}) == len(
        rule_table.RULES
    )


DAEMONSET = b"""apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: x}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
        - name: agent
          image: x:1
          resources: ${resources}
"""
VALUES = b"level: info\nresources:\n  requests: {cpu: 200m}\n  limits:\n    cpu: 100n100\n"


def test_the_place_is_the_line_that_set_the_value() -> None:
    body = parser.read("d", DAEMONSET).documents[0].value
    resources = parser.read("v", VALUES).documents[0].value["resources"]
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    path = ("spec", "template", "spec", "containers", 0, "resources")
    origin = Origin(
        Pointer("agents/a/daemonset.yaml", 0, ()),
        {path: (Pointer("agents/a/values/p.yaml", 0, ("resources",)),)},
    )
    key = key_of(body)
    files = {
        PurePosixPath("agents/a/daemonset.yaml"): DAEMONSET,
        PurePosixPath("agents/a/values/p.yaml"): VALUES,
    }
    bundle = Bundle(None, ClusterFacts("eu-1"), {key: Manifest(key, body, Digest(""), origin)})
    (finding,) = (one for one in validation.check(bundle, SourceTree(None, files)) if one.refused)
    assert str(finding.place) == "agents/a/values/p.yaml:5:10"
    assert str(finding.end) == "agents/a/values/p.yaml:5:17"
    assert (finding.rule, finding.object, finding.cluster) == ("DS010", key, "eu-1")


def test_output_of_kustomize_is_located_at_its_kustomization() -> None:
    data = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A, namespace: x}\n"
    body = parser.read("d", data).documents[0].value
    manifest = Manifest(
        key_of(body), body, Digest(""), Origin(Pointer("k/kustomization.yaml", 0, ()))
    )
    snapshot = SourceTree(
        None,
        {PurePosixPath("k/kustomization.yaml"): b"resources: [a.yaml]\n"},
        expanded={PurePosixPath("k"): data},
    )
    (finding,) = validation.check(Bundle(None, ClusterFacts(), {manifest.key: manifest}), snapshot)
    assert str(finding.place) == "k/kustomization.yaml"


def test_a_version_that_we_do_not_know_is_checked_as_the_nearest() -> None:
    data = (CASES / "right" / "input.yaml").read_bytes()
    assert not [
        one for one in checked(data, ("1.12", "v1.36.4", "1.99", "nonsense")) if one.refused
    ]


def test_an_object_has_the_same_findings_among_many() -> None:
    def text(number: int) -> str:
        data = "5" if number % 3 == 0 else "{a: b}"
        head = f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{number}_}}\n"
        return f"{head}data: {data}\n"

    def facts(found: list[Finding]) -> set[tuple[object, ...]]:
        return {(one.object, one.rule, one.path, one.message) for one in found}

    texts = [text(number) for number in range(2 * validation.TOGETHER + 1)]
    alone = [facts(checked(one.encode())) for one in texts]
    assert all(alone)
    assert facts(checked("".join(texts).encode())) == set().union(*alone)


def test_a_rule_that_fails_is_reported_and_the_other_objects_are_checked() -> None:
    @rule.rule(advice("DS999", Severity.INFO, "has a name"))
    def named(body: Body) -> list[rule.Violation]:
        return [rule.Violation(("name",), body["name"])]

    hits = rule_table.check_each([{"name": "a"}, {}, {"name": "b"}], rules=[named])
    assert [[hit.rule.id for hit in found] for found in hits] == [["DS999"], ["DS904"], ["DS999"]]
    assert hits == [
        rule_table.check(body, rules=[named]) for body in ({"name": "a"}, {}, {"name": "b"})
    ]
