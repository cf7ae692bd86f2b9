"""Content-named ConfigMaps are deleted when no object names them, and not before, regardless of
pruning.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.model import names
from gitops_ds.model.live import Live, Revision
from gitops_ds.model.objects import Key
from gitops_ds.plan import deletions

OLD = Key("", "ConfigMap", "agents", "agent-old")
AGENT = Key("apps", "DaemonSet", "agents", "agent")


def template(config: str) -> dict[str, Any]:
    return {
        "spec": {
            "containers": [{"name": "a"}],
            "volumes": [{"name": "c", "configMap": {"name": config}}],
        }
    }


def live(
    current: str, *kept: str, pods: frozenset[tuple[str, str]] = frozenset(), marked: bool = True
) -> Live:
    labels = {names.OWNER_LABEL: "x", **({names.CONTENT_NAMED: "agent"} if marked else {})}
    objects = {
        OLD: {"kind": "ConfigMap", "metadata": {"labels": labels}},
        AGENT: {"kind": "DaemonSet", "metadata": {}, "spec": {"template": template(current)}},
    }
    revisions = tuple(
        Revision(f"r{n}", n, f"h{n}", template(config), {}) for n, config in enumerate(kept)
    )
    return Live(objects, {AGENT: revisions}, (), pods)


@pytest.mark.parametrize(
    ("seen", "goes"),
    [
        (live("agent-new"), True),
        (live("agent-new", "agent-new"), True),
        (live("agent-old"), False),
        (live("agent-new", "agent-old", "agent-new"), False),
        (live("agent-new", pods=frozenset({("agents", "agent-old")})), False),
        (live("agent-new", pods=frozenset({("elsewhere", "agent-old")})), True),
        (live("agent-new", marked=False), False),
    ],
)
def test_a_config_map_is_collected_only_when_no_template_revision_or_pod_references_it(
    seen: Live, goes: bool
) -> None:
    assert deletions.collectable([OLD], seen) == (frozenset({OLD}) if goes else frozenset())
