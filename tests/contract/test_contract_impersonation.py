"""The same cluster with requests that impersonate another user."""

from __future__ import annotations

import pytest

from gitops_ds.core.cluster import Identity
from gitops_ds.core.objects import CONFIG_MAP
from tests.contract.scenes import Stage
from tests.plan.world import config_map

ADMIN = Identity("ada", ("system:masters", "ops"))


@pytest.mark.usefixtures("play")
async def test_requests_of_an_impersonated_administrator_succeed(stage: Stage, /) -> None:
    acting = stage.cluster.acting_as(ADMIN)
    body = config_map("settings", stage.namespace, a="1")
    await acting.apply(CONFIG_MAP, body, manager="ada")
    assert (await stage.cluster.get(CONFIG_MAP, stage.namespace, "settings"))["data"] == {"a": "1"}
    assert (await acting.get(CONFIG_MAP, stage.namespace, "settings"))["data"] == {"a": "1"}
    await acting.delete(CONFIG_MAP, stage.namespace, "settings")
    assert [
        item["metadata"]["name"] for item in (await stage.cluster.list(CONFIG_MAP)).items
    ].count("settings") == 0


@pytest.mark.parametrize("user", ["", " "])
def test_an_empty_user_is_not_an_identity(user: str) -> None:
    with pytest.raises(ValueError, match="user"):
        Identity(user, ("system:masters",))
