"""The files of gitops-ds: the examples of the format are valid, a typo is reported at its line."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
from jsonschema import Draft202012Validator

from gitops_ds.checks.schema import repository_files
from gitops_ds.cli.check import model
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.yaml import parser

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"

GOOD = {
    "gitops-ds.yaml": """
version: v1
name: node-agents
defaults: {namespace: node-agents, labels: {team: platform}}
manifests: ["legacy/**/*.yaml"]
ignore: ["docs/**"]
kubernetes: ["1.35", "1.37"]
class: {cni: [cilium], csi: [ebs-csi-node]}
profile: default
""",
    "clusters/eu-1.yaml": """
environment: production
api: {contextFrom: in-cluster}
kubernetes: ["1.36"]
pools:
  general: {match: [{key: pool, in: [general]}], nodes: 4200}
  gpu: {match: [{key: nvidia.com/gpu.present, in: ["true"]}], nodes: 180}
ignore: {match: [{key: type, in: [virtual-kubelet]}, {key: old, exists: false}]}
agents: {fluent-bit: {}, node-exporter: , nvidia-device-plugin: {hold: true}}
""",
    "environments/production.yaml": """
values: {logLevel: warn}
agents: {fluent-bit: {values: {metricsPort: 2021}}}
rollout: {limits: {atRisk: {cluster: 5%}}}
""",
    "agents/fluent-bit/variants.yaml": """
variants:
  - name: gpu
    nodes: {pool: [gpu]}
    values: {resources: {requests: {cpu: 200m}}}
  - name: large
    nodes: {match: [{key: node.kubernetes.io/instance-type, in: [m7i.24xlarge]}]}
    patches: [{op: add, path: /spec/template/spec/containers/0/args/-, value: --workers=8}]
  - {name: edge, nodes: {pool: edge}, deploy: never}
  - name: default
expect: {coverage: all-linux-nodes}
""",
    "agents/nvidia/variants.yaml": "variants: [{name: default, nodes: {pool: [gpu]}}]\nexpect: "
    "{coverage: {pool: [gpu]}}\n",
    "agents/nvidia/source.yaml": """
helm:
  {chart: oci://registry.example.com/charts/plugin, version: 0.17.1, values: {gfd: {enabled: true}}}
bind:
  migStrategy: {kind: DaemonSet, path: "spec.template.spec.containers[ctr].env[MIG_STRATEGY].value"}
""",
    "agents/fluent-bit/agent.yaml": "dependsOn: [cilium]\nclass: logging\n",
    "agents/fluent-bit/values/production.yaml": "version: 3.1.9\n",
    "agents/fluent-bit/patches/production.yaml": """
- target: {kind: DaemonSet, name: fluent-bit}
  patch: [{op: add, path: /spec/template/metadata/annotations, value: {a: b}}]
""",
    "agents/fluent-bit/rollout.yaml": """
policy: v1
stages:
  - name: canary
    nodes: {count: 5, perVariant: 1, perZone: 1, prefer: {node.example.com/canary: "true"}}
    soak: 30m
    gates: [pods, nodes, logs-flow]
  - name: batch
    where: {pool: [batch, spot]}
    pace: {start: 1, factor: 2, max: 10%, every: 60s}
  - name: general
    where: {pool: [general]}
    oneAtATime: topology.kubernetes.io/zone
    soakBetween: 1h
  - name: gpu
    where: {pool: [gpu]}
    windows: [gpu-night]
    nodesWhen: idle-or-24h
    approval: {from: [team-gpu]}
  - rest
limits:
  atRisk: {cluster: 5%, perZone: 15%, perVariant: 25%, nodes: 200}
  parked: 20%
  api: {writesPerSecond: 20}
  registry: {concurrentPulls: 50}
gates:
  pods: {readyWithin: 3m, restarts: 0, reasons: none, memoryOfLimit: 90%}
  nodes:
    conditions: [Ready, "!MemoryPressure"]
    neighbours: {newlyUnready: 0, newRestarts: 1}
  api-server: {prometheus: 'apiserver_current_inflight_requests', compare: {before: +30%}}
  logs-flow:
    {prometheus: 'sum(x{node=~"$nodes"})', compare: {control: -20%}, noData: hold, for: 10m}
onFailure: {halt: at-once, scope: agent, revert: {after: 2m, how: commit}}
progress: {deadline: 6h, perNode: 10m}
newNodes: {get: stable, until: every-variant-proved}
config: {rolls: like-template}
supersede: newest-from-canary
windows:
  gpu-night: {cron: "0 1 * * *", length: 4h, timezone: Europe/Berlin}
freeze:
  - {from: 2027-12-20, to: 2028-01-03, except: [revert]}
after: [{agent: cilium, sameNode: true}]
""",
}


DEPLOY = 'variants[0].deploy is the string "Never", not always or never: did you mean "never"?'
SOAK = (
    'stages[1].soak is the string "5 minutes": write a duration such as 30s, 5m, 2h, 14d or 1h30m'
)
AT_RISK = (
    'limits.atRisk.cluster is the string "lots": '
    "write an integer from 0, or a percentage such as 5%"
)


def findings(file: str, text: str) -> list[str]:
    snapshot = SourceTree(
        None,
        {PurePosixPath("gitops-ds.yaml"): b"version: v1\n", PurePosixPath(file): text.encode()},
    )
    return [
        f"{reported.rule} {reported.place} {reported.message}"
        for reported in repository_files.check_repository(snapshot)
    ]


@pytest.mark.parametrize("file", sorted(GOOD))
def test_the_examples_of_the_format_pass(file: str) -> None:
    assert repository_files.schema_for(PurePosixPath(file)) is not None
    assert findings(file, GOOD[file]) == []


@pytest.mark.parametrize("file", ["clusters/a.yaml", "environments/a.yaml"])
def test_defaults_of_rollouts_have_the_keys_of_a_policy(file: str) -> None:
    policy = """
  stages: [canary, {name: rest, soak: 5m}]
  gates: {load: {webhook: {url: "https://gate.example.com"}, dataOf: 90%}}
  rollback: {stages: keep}
"""
    assert findings("agents/a/rollout.yaml", policy) == []
    assert findings(file, f"rollout:{policy}") == []
    (wrong,) = findings(file, "rollout:\n  rolback: {stages: keep}\n")
    assert wrong.startswith(f'DS003 {file}:2:3 unknown key "rolback" in rollout: did you mean')


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (
            "gitops-ds.yaml",
            "version: v1\nnmae: x\n",
            ['DS003 gitops-ds.yaml:2:1 unknown key "nmae": did you mean "name"?'],
        ),
        (
            "gitops-ds.yaml",
            "version: v1\nkubernetes: [1.35]\n",
            ["DS004 gitops-ds.yaml:2:14 kubernetes[0] must be a string, not the number 1.35"],
        ),
        (
            "gitops-ds.yaml",
            "name: x\n",
            ['DS005 gitops-ds.yaml:1:1 "version" is missing: it is required'],
        ),
        (
            "clusters/a.yaml",
            "pools:\n  gpu:\n    match: [{key: a, inn: [b]}]\n",
            [
                (
                    'DS003 clusters/a.yaml:3:22 unknown key "inn" in pools.gpu.match[0]: '
                    "did you mean "
                    '"in"?'
                )
            ],
        ),
        (
            "clusters/a.yaml",
            "pools:\n  gpu: {nodes: ten, match: [{key: a}]}\n",
            [
                (
                    "DS004 clusters/a.yaml:2:16 pools.gpu.nodes must be an integer, not the string "
                    '"ten"'
                )
            ],
        ),
        (
            "agents/a/variants.yaml",
            "variants:\n  - name: a\n    deploy: Never\n",
            [f"DS006 agents/a/variants.yaml:3:13 {DEPLOY}"],
        ),
        (
            "agents/a/rollout.yaml",
            "stages: [canary, {name: rest, soak: 5 minutes}]\n",
            [f"DS006 agents/a/rollout.yaml:1:37 {SOAK}"],
        ),
        (
            "agents/a/rollout.yaml",
            "stages: [canary]\nlimits: {atRisk: {cluster: lots}}\n",
            [f"DS006 agents/a/rollout.yaml:2:28 {AT_RISK}"],
        ),
        (
            "agents/a/agent.yaml",
            "dependsOn: cilium\n",
            ['DS004 agents/a/agent.yaml:1:12 dependsOn must be a list, not the string "cilium"'],
        ),
    ],
)
def test_a_mistake_is_reported_at_its_line(file: str, text: str, expected: list[str]) -> None:
    assert findings(file, text) == expected


def test_a_repository_of_plain_manifests_has_no_files_of_gitops_ds() -> None:
    manifest = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
    snapshot = SourceTree(
        None,
        {
            PurePosixPath("clusters/config.yaml"): manifest,
            PurePosixPath("environments/x.yaml"): manifest,
        },
    )
    assert list(repository_files.check_repository(snapshot)) == []


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.schema.json")), ids=lambda path: path.name)
def test_schemas_are_valid_closed_and_described(file: Path) -> None:
    schema = parser.read(file.name, file.read_bytes()).documents[0].value
    Draft202012Validator.check_schema(schema)
    missing = []

    def walk(value: object, where: str) -> None:
        if isinstance(value, dict):
            for name, one in (
                (value.get("properties") or {}).items()
                if isinstance(value.get("properties"), dict)
                else ()
            ):
                if isinstance(one, dict) and not ({"description", "$ref"} & set(one)):
                    missing.append(f"{where}/{name}")
            for name, one in value.items():
                walk(one, f"{where}/{name}")
        elif isinstance(value, list):
            for index, one in enumerate(value):
                walk(one, f"{where}/{index}")

    walk(schema, "")
    assert [
        one
        for one in missing
        if not re.search(r"patches|anyOf|/old|/new|/object$", f"{file.name}{one}")
    ] == []


def test_a_rollout_policy_with_wrong_values_has_one_finding_for_each_mistake() -> None:
    policy = b"stages:\n- name: canary\n  approval: yes\n- name: rest\nsoak: 3m\n"
    files = {"agents/a/rollout.yaml": policy} | {f"clusters/{one}.yaml": b"{}\n" for one in "xy"}
    tree = SourceTree(None, {PurePosixPath(name): data for name, data in files.items()})
    prepared = [
        prepare.prepare(tree, cluster=name, files=not number) for number, name in enumerate("xy")
    ]
    found = model.together(prepared, ())
    assert [(one.rule, one.place and one.place.line) for one in found if one.place] == [
        ("DS004", 3),
        ("DS003", 5),
    ]
