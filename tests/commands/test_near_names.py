"""A name that does not exist is an error with the nearest one."""

from __future__ import annotations

import pytest

from gitops_ds.cli.adopt import adopted_repository
from gitops_ds.cli.requests import service_requests
from gitops_ds.core import errors
from tests.simulator.setup import daemonset, named, set_up


async def test_a_namespace_that_does_not_exist_is_not_adopted_silently() -> None:
    async with set_up(named(range(1)), daemonset()) as there:
        with pytest.raises(errors.NoMatch, match="no namespace defualt; did you mean default"):
            await adopted_repository.adopt(there.people, ["default", "defualt"])
        with pytest.raises(errors.NoMatch, match=r"no namespace monitoring$"):
            await adopted_repository.adopt(there.people, ["monitoring"])
        assert (await adopted_repository.adopt(there.people, ["default"])).files


async def test_the_nearest_daemonset_is_named() -> None:
    async with set_up(named(range(1)), daemonset()) as there:
        for name, hint in (("agnet", "did you mean agent"), ("x", "`gitops-ds get` lists them")):
            with pytest.raises(errors.NoMatch, match=f'"{name}" not found: {hint}'):
                await service_requests.suspend_agent(there.people, name, "", suspended=True)
