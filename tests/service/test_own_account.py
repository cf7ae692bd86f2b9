"""The service knows whose requests it sends: its account is protected from its repositories."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import Cluster, Identity
from gitops_ds.core.objects import Resource
from gitops_ds.kube.client import connect
from gitops_ds.kube.client.connect import Connection
from gitops_ds.service import own_account
from tests import controlplane


class Server:
    """An API server with one answer to each review."""

    def __init__(self, answer: Mapping[str, Any] | Exception) -> None:
        self.answer = answer

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> Mapping[str, Any]:
        assert (resource.kind, body["kind"]) == ("SelfSubjectReview", "SelfSubjectReview")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def read(answer: Mapping[str, Any] | Exception) -> Identity | None:
    return asyncio.run(own_account.read(cast("Cluster", Server(answer))))


def test_the_user_and_its_groups_are_read() -> None:
    info = {"username": "system:serviceaccount:gitops-ds:gitops-ds", "groups": ["a", "b"]}
    assert read({"status": {"userInfo": info}}) == Identity(info["username"], ("a", "b"))  # type: ignore[arg-type]
    assert read({"status": {"userInfo": {"username": "ada"}}}) == Identity("ada")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"status": {"userInfo": {"username": ""}}},
        errors.Forbidden("no", 403, "Forbidden"),
        errors.NotFound("no", 404, "NotFound"),
    ],
)
def test_an_api_server_that_does_not_say_leaves_the_namespaces(
    answer: Mapping[str, Any] | Exception,
) -> None:
    assert read(answer) is None


@pytest.mark.controlplane
def test_a_real_api_server_names_the_account(control_plane: controlplane.ControlPlane) -> None:
    async def identity() -> Identity | None:
        async with connect.writing(
            Connection(str(control_plane.kubeconfig), writes=True)
        ) as cluster:
            return await own_account.read(cluster)

    who = asyncio.run(identity())
    assert who is not None
    assert "system:authenticated" in who.groups
