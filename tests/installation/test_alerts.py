"""Alerts fire when they should, use existing metrics, and link to a page with the remedy."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from ruamel.yaml import YAML

from gitops_ds.notify import metrics
from tests import installation as deploy

ALERTS = deploy.DEPLOY / "monitoring/alerts.yaml"
TESTS = deploy.ROOT / "tests/installation/alerts.yaml"
NAME = re.compile(r"gitopsds_[a-z_]+")


def rules() -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load(ALERTS.read_text())["groups"][0]["rules"])


@pytest.mark.system
def test_every_alert_fires_when_it_should_and_not_before() -> None:
    ended = subprocess.run(
        ("promtool", "test", "rules", TESTS), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_alert_is_seen_to_fire_and_to_keep_still() -> None:
    cases = [
        one
        for test in YAML(typ="safe").load(TESTS.read_text())["tests"]
        for one in test["alert_rule_test"]
    ]
    for firing in (True, False):
        assert {one["alertname"] for one in cases if bool(one["exp_alerts"]) is firing} == {
            rule["alert"] for rule in rules()
        }


def test_alerts_and_dashboard_query_only_existing_metrics() -> None:
    dashboard = json.loads((deploy.DEPLOY / "monitoring/dashboard.json").read_text())
    expressions = [rule["expr"] for rule in rules()] + [
        target["expr"] for panel in dashboard["panels"] for target in panel["targets"]
    ]
    exposed = {
        line.split()[2]
        for line in metrics.Metrics().text().decode().splitlines()
        if line.startswith("# TYPE")
    }
    assert {name for text in expressions for name in NAME.findall(text)} <= exposed


def test_every_alert_leads_to_what_to_do() -> None:
    for rule in rules():
        file, anchor = rule["annotations"]["runbook"].split("#")
        headings = {
            line.lstrip("# ").strip().lower()
            for line in (deploy.ROOT / file).read_text().splitlines()
            if line.startswith("#")
        }
        assert anchor == rule["alert"].lower()
        assert anchor in headings
