"""Rollout policies of a repository: their files, and the place of each finding."""

from __future__ import annotations

import pytest

from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.source import render
from tests.render import snapshots

FILE = "agents/a/rollout.yaml"
POOLS = """
pools:
  general: {match: [{key: pool, in: [general]}], nodes: 3}
  gpu: {match: [{key: pool, in: [gpu]}], nodes: %s}
"""


def bundle(policy: str | None = "stages: [canary, rest]\n", **files: str) -> Bundle:
    """The bundle of a repository with the agents a and cni; `files` by the name of their folder."""
    agent = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: %s, namespace: agents}\n"
    texts = {
        "gitops-ds.yaml": "version: v1\nname: fleet\n",
        "clusters/one.yaml": "environment: production\n" + files.get("cluster", ""),
        "environments/production.yaml": files.get("environment", "values: {}\n"),
        "agents/a/daemonset.yaml": agent % "a",
        "agents/cni/daemonset.yaml": agent % "cni",
    }
    if policy is not None:
        texts[FILE] = policy
    return render.render(snapshots.of_texts(texts), cluster="one")


def findings(rendered: Bundle) -> list[str]:
    return [f"{one.rule} {one.place} {one.message}" for one in rendered.findings]


def test_the_nearest_file_wins_key_by_key_and_lists_are_replaced() -> None:
    rendered = bundle(
        "stages: [canary, rest]\nlimits: {atRisk: {nodes: 3}}\n",
        cluster="rollout: {limits: {atRisk: {nodes: 9, perZone: 10%}}, stages: [rest]}\n",
        environment="rollout: {limits: {parked: 5%, atRisk: {perZone: 50%}}}\n",
    )
    assert findings(rendered) == []
    assert rendered.rollouts["a"] == {
        "stages": ["canary", "rest"],
        "limits": {"parked": "5%", "atRisk": {"nodes": 3, "perZone": "10%"}},
    }
    assert rendered.rollouts["cni"]["stages"] == ["rest"]


@pytest.mark.parametrize(
    ("policy", "environment", "agents"),
    [
        (None, "rollout: {limits: {parked: 5%}}\n", set()),
        (None, "rollout: {stages: [canary]}\n", {"a", "cni"}),
        ("limits: {parked: 5%}\n", "values: {}\n", {"a"}),
        ("{}\n", "values: {}\n", {"a"}),
        ("# every default\n", "rollout: {limits: {parked: 5%}}\n", {"a"}),
        (None, "values: {}\n", set()),
    ],
)
def test_an_agent_has_a_policy_by_its_file_or_by_stages_of_the_defaults(
    policy: str | None, environment: str, agents: set[str]
) -> None:
    assert set(bundle(policy, environment=environment).rollouts) == agents


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (
            "stages: [{name: one, gates: [pdos]}]\n",
            "DS802 1:22 there is no gate pdos; did you mean pods?",
        ),
        (
            (
                "stages:\n  - {name: one, windows: [w]}\n"
                'windows: {v: {cron: "0 1 * * *", length: 1h}}\n'
            ),
            "DS802 2:17 there is no window w; known: v",
        ),
        (
            "stages: [{name: one, where: {pool: gup}}]\n",
            "DS802 1:30 there is no pool gup; did you mean gpu?",
        ),
        (
            "after:\n  - {agent: cin}\n",
            "DS802 2:6 there is no agents/cin/; did you mean cni?",
        ),
        ("after: [{agent: a}]\n", "DS808 1:10 a waits for itself"),
        (
            'windows: {w: {cron: "0 1 30 2 *", length: 1h}}\n',
            "DS808 1:15 '0 1 30 2 *' does not open within 30 days",
        ),
        (
            'windows: {w: {cron: "0 1 * 6 *", length: 1h}}\n',
            "DS808 1:15 '0 1 * 6 *' does not open within 30 days",
        ),
        (
            'windows: {w: {cron: "0 1 * * *", length: 0s}}\n',
            "DS808 1:34 a window of no length is never open",
        ),
        (
            'windows: {w: {cron: "0 1 * * *", length: 1h, timezone: Europe/Berln}}\n',
            (
                "DS808 1:15 the time zone 'Europe/Berln' is unknown: set a name "
                "such as Europe/Berlin or UTC"
            ),
        ),
        (
            'freeze: [{from: "2027-12-20", to: "2027-12-19"}]\n',
            ("DS808 1:31 the freeze ends on 2027-12-19, before it begins on 2027-12-20"),
        ),
        (
            'freeze: [{from: "2027-12-20", to: "2028-02-30"}]\n',
            "DS808 1:31 2028-02-30 is not a day of the calendar",
        ),
        (
            "stages: [rest, canary]\n",
            "DS808 1:1 the stage rest must be the last one",
        ),
        (
            "stages: [canary, canary]\n",
            "DS808 1:1 each stage must have a name of its own",
        ),
        (
            "stages: [{name: rest, where: {pool: gpu}}]\n",
            (
                "DS808 1:23 rest takes every node that no other stage names: name "
                "the stage differently"
            ),
        ),
        (
            "stages: [{name: one, soakBetween: 5m}]\n",
            (
                "DS808 1:22 soakBetween has no effect without oneAtATime: add it, "
                "or remove soakBetween"
            ),
        ),
        (
            "limits: {atRisk: {perZone: 0%}}\n",
            ("DS808 1:19 with a limit of 0% no node is ever updated: set at least 1"),
        ),
        (
            "gates: {pods: {readyWithin: 1h}}\n",
            ("DS808 1:16 readyWithin is longer than progress.perNode, which fails the node before"),
        ),
        (
            "gates: {flow: {prometheus: up}}\n",
            "DS808 1:16 the query has no bound: set below, above or compare",
        ),
        (
            "gates: {flow: {prometheus: up, compare: {}}}\n",
            ("DS808 1:32 compare names nothing to compare with: set before or control"),
        ),
        (
            "gates: {flow: {below: 3}}\n",
            "DS808 1:16 below has no effect without a query: set prometheus",
        ),
        (
            "gates: {flow: {for: 3s}}\n",
            "DS808 1:9 gate flow measures nothing: set prometheus or webhook",
        ),
        (
            "gates: {flow: {prometheus: up, below: 1, above: 3}}\n",
            "DS808 1:32 no value is below 1 and above 3",
        ),
        (
            'gates: {flow: {prometheus: "up", compare: {control: -20%}}}\n',
            (
                "DS808 1:34 control has no effect: the query is the same for untouched nodes "
                "without $nodes"
            ),
        ),
        (
            "gates: {flow: {prometheus: up, below: 1, noData: fail}}\n",
            ("DS808 1:42 a new pod has no data before its first scrape: set for, longer than that"),
        ),
        (
            "gates: {flow: {prometheus: up, below: 1, dataOf: 80%}}\n",
            "DS808 1:42 dataOf has no effect: the gate has neither memoryOfLimit nor $nodes",
        ),
        (
            "gates: {pods: {for: 3s}}\n",
            (
                "DS808 1:16 for has no effect without a measurement: set prometheus or webhook or "
                "memoryOfLimit or neighbours"
            ),
        ),
        (
            "gates: {ask: {webhook: {url: 'https://gates.example.com/x', timeout: 2m}}}\n",
            "DS808 1:61 a webhook has at most 60 seconds to answer",
        ),
        (
            "stages: [{name: canary, until: 3h}]\n",
            "DS808 1:25 until has no effect without nodesWhen: idle: add it, or remove until",
        ),
    ],
)
def test_a_policy_that_cannot_be_carried_out_is_refused_at_its_key(
    policy: str, expected: str
) -> None:
    rendered = bundle(policy, cluster=POOLS % 2)
    shown = [one for one in findings(rendered) if one[:5] == expected[:5]]
    assert [one.replace(f"{FILE}:", "") for one in shown] == [expected]
    assert all(one.refused for one in rendered.findings)
    assert "a" not in rendered.rollouts


def test_a_stage_that_no_declared_node_is_in_is_refused() -> None:
    policy = "stages: [canary, {name: gpu, where: {%s}}, rest]\n"
    pool, match = "pool: gpu", "match: [{key: pool, in: [gpu]}]"
    for scope in (pool, match):
        assert findings(bundle(policy % scope, cluster=POOLS % 2)) == []
        assert findings(bundle(policy % scope, cluster=POOLS % 0)) == [
            (
                "DS808 agents/a/rollout.yaml:1:30 no declared node of any cluster is in stage gpu: "
                "change or remove it"
            )
        ]


def test_without_the_number_and_labels_of_all_nodes_no_stage_is_called_empty() -> None:
    policy = "stages: [canary, {name: gpu, where: {match: [{key: %s, in: [gpu]}]}}, rest]\n"
    unnumbered = "pools: {other: {match: [{key: pool, in: [other]}]}}\n"
    assert findings(bundle(policy % "pool", cluster=unnumbered)) == []
    assert findings(bundle(policy % "unknown", cluster=POOLS % 2)) == []


def test_a_pool_of_another_cluster_is_known() -> None:
    texts = {
        "gitops-ds.yaml": "version: v1\nname: fleet\n",
        "clusters/one.yaml": POOLS % 2,
        "clusters/two.yaml": "pools: {edge: {match: [{key: pool, in: [edge]}], nodes: 1}}\n",
        "agents/a/rollout.yaml": "stages: [{name: edge, where: {pool: edge}}, rest]\n",
        "agents/a/daemonset.yaml": "apiVersion: apps/v1\nkind: DaemonSet\n"
        "metadata: {name: a, namespace: agents}\n",
    }
    assert findings(render.render(snapshots.of_texts(texts), cluster="one")) == []


def test_a_finding_of_the_defaults_is_at_its_line_in_their_file() -> None:
    rendered = bundle(environment="values: {}\nrollout:\n  gates: {pods: {below: 3}}\n")
    message = "below has no effect without a query: set prometheus"
    assert findings(rendered) == [f"DS808 environments/production.yaml:3:18 {message}"]
    unused = bundle(None, cluster="rollout:\n  gates: {pods: {below: 3}}\n")
    assert findings(unused) == [f"DS808 clusters/one.yaml:3:18 {message}"]


def test_a_monthly_window_in_any_time_zone_is_not_a_problem() -> None:
    for zone in ("UTC", "Europe/Berlin", "Pacific/Kiritimati"):
        policy = f'windows: {{w: {{cron: "0 0 1 * *", length: 1h, timezone: {zone}}}}}\n'
        assert findings(bundle(policy)) == []
