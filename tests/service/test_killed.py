"""A service that is killed in the middle of its first apply leaves nothing behind that the next one
doesn't finish.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.deploy import state_store
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.kube.client import config, rest
from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import running, until

pytestmark = [pytest.mark.slow, pytest.mark.controlplane]
AGENTS = 50


def there(plane: controlplane.ControlPlane, space: str) -> dict[str, Any]:
    items = plane.request("GET", f"/apis/apps/v1/namespaces/{space}/daemonsets")["items"]
    return {item["metadata"]["name"]: item["metadata"] for item in items}


def remembered(plane: controlplane.ControlPlane, upstream: gitservers.Upstream) -> DeployerState:
    called = open_repository.identity(open_repository.named(str(upstream.path)).where)  # type: ignore[arg-type]

    async def load() -> DeployerState:
        async with rest.HttpCluster(config.access(str(plane.kubeconfig), None)) as cluster:
            return await state_store.load(
                cluster, "service-test", state_store.identity("", called, "", "")
            )

    return asyncio.run(load())


@pytest.mark.parametrize("enough", [1, 17, 40])
def test_the_next_service_finishes_a_first_apply_that_was_killed(
    tmp_path: Path, api_server: controlplane.ControlPlane, enough: int
) -> None:
    space = f"killed-{enough}"
    api_server.kubectl("create", "namespace", space)
    upstream = gitservers.Upstream(tmp_path / "fleet")
    agents = {f"agent-{n:02d}" for n in range(AGENTS)}
    commit = upstream.commit(
        {f"{name}.json": json.dumps(daemonset(name, namespace=space)) for name in agents}
    )
    words = ("-C", str(upstream.path), "--interval", "1s")
    with running(tmp_path, api_server, *words) as (process, log):
        until(lambda: len(there(api_server, space)) >= enough, log.read_text)
        process.kill()
        process.wait()
    survivors = there(api_server, space)
    noted = {key.name for key in remembered(api_server, upstream).inventory}
    assert survivors.keys() <= noted  # what was made is never forgotten

    with running(tmp_path, api_server, *words) as (_, log):
        until(lambda: remembered(api_server, upstream).last_good == commit, log.read_text)
        running_agents = there(api_server, space)
        assert (
            {key.name for key in remembered(api_server, upstream).inventory}
            == running_agents.keys()
            == agents
        )
        # What was there is neither made again nor written again.
        assert {name: running_agents[name]["resourceVersion"] for name in survivors} == {
            name: body["resourceVersion"] for name, body in survivors.items()
        }
        # Not `==`: a request that was on its way at the kill may have been taken after we looked.
        assert log.read_text().count("created DaemonSet") <= AGENTS - len(survivors)
