"""The owner's id of a repository does not change with its address, and is never that of a fork."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import git
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import CONFIG_MAP, CommitId, Key
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import owner_identity, source_status_store, state_store
from gitops_ds.deploy.owner_identity import Evidence, FoundOwner, KnownOwner, OwnerKey
from gitops_ds.source.git.address import same_place
from gitops_ds.testing import simulator

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
LAST, NOW = CommitId("1" * 40), 1000.0
HTTPS, SSH = "https://git.example.com/team/agents", "git@git.example.com:team/agents.git"
FORK, LAPTOP = "https://git.example.com/dana/agents", "/home/dana/agents"
KEY = OwnerKey("", HTTPS, "nodes", "prod")
NAMED = replace(KEY, hint="agents")


def state(repository: str, objects: int = 1, path: str | None = "nodes") -> DeployerState:
    inventory = frozenset(Key("", "ConfigMap", "a", str(n)) for n in range(objects))
    return DeployerState(repository, path, "prod", LAST, LAST, inventory)


def legacy(repository: str) -> tuple[str, DeployerState]:
    """The id and the state of an earlier version, which does not have the path."""
    return replace(KEY, repository=repository).new_id(), state(repository, path=None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (SSH, HTTPS, True),
        (HTTPS, f"{HTTPS}.git/", True),
        ("https://GIT.example.com:443/team/agents", HTTPS, True),
        ("ssh://git@git.example.com:2222/team/agents", HTTPS, True),
        ("ssh://ada@git.example.com:29418/agents", "ssh://dana@git.example.com:29418/agents", True),
        ("ssh://git@git.example.com:2222/a", "ssh://git@git.example.com/a", False),
        ("https://git.example.com:8443/a", "https://git.example.com/a", False),
        ("dana@git.example.com:agents", "ada@git.example.com:agents", False),
        (HTTPS, FORK, False),
        (HTTPS, "https://git.example.org/team/agents", False),
        (HTTPS, "https://git.example.com/Team/agents", False),
        (LAPTOP, LAPTOP, True),
        (LAPTOP, f"{LAPTOP}.git", False),
        (LAPTOP, HTTPS, False),
        ("templates in the cluster", HTTPS, False),
    ],
)
def test_addresses_of_one_repository_over_ssh_and_https_are_of_one_place(
    one: str, other: str, same: bool
) -> None:
    assert same_place(one, other) is same_place(other, one) is same


OWN = KEY.new_id()


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ({}, FoundOwner(OWN)),
        ({OWN: KnownOwner(state(HTTPS))}, FoundOwner(OWN)),
        # the address has objects of its own, so an owner that moved here is another one
        (
            {OWN: KnownOwner(state(HTTPS)), "old": KnownOwner(state(LAPTOP, 9), moved=True)},
            FoundOwner(OWN),
        ),
        ({"old": KnownOwner(state(LAPTOP), moved=True)}, FoundOwner("old")),
        ({"old": KnownOwner(state(SSH))}, FoundOwner("old")),
        ({"old": KnownOwner(state(FORK))}, FoundOwner(OWN)),
        # a service of an earlier version refused every object of the owner at the earlier address
        (
            {
                OWN: KnownOwner(state(HTTPS, 0)),
                "old": KnownOwner(state(LAPTOP), moved=True),
            },
            FoundOwner("old", frozenset({OWN})),
        ),
        ({OWN: KnownOwner(state(HTTPS, 0))}, FoundOwner(OWN)),
        (
            {"a": KnownOwner(state(SSH, 2)), "b": KnownOwner(state(SSH, 3))},
            FoundOwner("b"),
        ),
        # a new repository at the address of one that has moved with its id
        ({OWN: KnownOwner(state(FORK))}, FoundOwner(KEY.new_id(1))),
        (
            {OWN: KnownOwner(state(FORK)), KEY.new_id(1): KnownOwner(state(SSH))},
            FoundOwner(KEY.new_id(1)),
        ),
    ],
)
def test_an_owner_with_objects_at_the_address_or_moved_to_it_is_continued(
    known: Mapping[str, KnownOwner], found: FoundOwner
) -> None:
    assert owner_identity.choose(KEY, known) == found


@dataclasses.dataclass
class Case:
    """States, and the sources that a service follows or followed; whether the last applied commit
    is in the history, and the addresses of other repositories.
    """

    states: Iterable[tuple[str, DeployerState]]
    followed: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    descends: bool = True
    elsewhere: tuple[str | tuple[str, str], ...] = ()
    service: bool = True
    adopt: bool = False
    key: OwnerKey = KEY

    def find(self) -> FoundOwner:
        async def main() -> FoundOwner:
            async with simulator.SimulatedCluster() as cluster:
                client = cluster.client()
                for id, one in self.states:
                    await state_store.save(client, "gitops-ds", id, one)
                for id, active in self.followed.items():
                    status = SourceStatus(id, written=NOW, active=active)
                    body = source_status_store.body("gitops-ds", status)
                    await client.create(CONFIG_MAP, body)

                async def contains(commit: CommitId) -> bool:
                    assert commit == LAST
                    return self.descends

                def elsewhere(repository: str, path: str) -> bool:
                    return not {repository, (repository, path)}.isdisjoint(self.elsewhere)

                evidence = Evidence(contains, elsewhere, NOW, self.service, self.adopt)
                return await owner_identity.find(client, "gitops-ds", self.key, evidence)

        return asyncio.run(main())


LAPTOP_ID, FORK_ID, SSH_ID = (legacy(one)[0] for one in (LAPTOP, FORK, SSH))


@pytest.mark.parametrize(
    ("case", "id"),
    [
        # an earlier version applied a directory, now the repository has a server
        (Case([legacy(LAPTOP)]), LAPTOP_ID),
        (Case([legacy(LAPTOP)], service=False), LAPTOP_ID),
        (Case([("kept", state(LAPTOP))]), "kept"),
        (Case([legacy(LAPTOP)], descends=False), OWN),
        (Case([legacy(LAPTOP)], elsewhere=(LAPTOP,)), OWN),
        (Case([legacy(LAPTOP)], {LAPTOP_ID: True}, service=False), OWN),
        (Case([legacy(LAPTOP)], {LAPTOP_ID: False}, service=False), LAPTOP_ID),
        # by ssh before, by https now
        (Case([legacy(SSH)], descends=False, service=False), SSH_ID),
        # another address on a server: a fork, unless this service followed it
        (Case([legacy(FORK)], service=False), OWN),
        (Case([legacy(FORK)]), OWN),
        (Case([legacy(FORK)], {FORK_ID: True}, service=False), OWN),
        (Case([legacy(FORK)], {FORK_ID: False}, service=False), OWN),
        (Case([legacy(FORK)], {FORK_ID: False}), FORK_ID),
        (Case([legacy(FORK)], {FORK_ID: True}), FORK_ID),
        (Case([legacy(FORK)], {FORK_ID: False}, descends=False), OWN),
        (Case([legacy(FORK)], {FORK_ID: False}, elsewhere=(FORK,)), OWN),
        # another directory or cluster is another owner
        (Case([("kept", state(LAPTOP, path="other"))]), OWN),
        (Case([("kept", replace(state(LAPTOP), cluster="test"))]), OWN),
        (
            Case([legacy(LAPTOP)], key=replace(KEY, path="other")),
            replace(KEY, path="other").new_id(),
        ),
        # a name that is added or changed later
        (Case([legacy(HTTPS)], key=replace(KEY, hint="agents")), OWN),
        (Case([("agents.prod", state(HTTPS))], key=replace(KEY, hint="other")), "agents.prod"),
        # a name moves with the repository, and is that of every clone
        (Case([("agents.prod", state(FORK))], key=replace(KEY, hint="agents")), "agents.prod"),
        (Case([("agents.prod", state(LAPTOP))], key=NAMED), "agents.prod"),
        # so do an id that has no objects and no repository, and a folder that is renamed
        (Case([("agents.prod", state(FORK, 0))], descends=False, key=NAMED), "agents.prod"),
        (Case([("agents.prod", state(HTTPS, path="old"))], key=NAMED), "agents.prod"),
        # an address keeps its id, also if its commits write another name
        (Case([("agents.prod", state(HTTPS, path=None))], key=NAMED), "agents.prod"),
        (
            Case([("agents.prod", state(FORK)), ("own", state(HTTPS))], key=NAMED),
            "own",
        ),
        (Case([("own", state(HTTPS))], key=replace(KEY, hint="Agents")), "own"),
        (Case([("own", state(HTTPS, 0))], key=replace(KEY, hint="startup-taints")), "own"),
    ],
)
def test_the_evidence_decides_about_another_address(case: Case, id: str) -> None:
    assert case.find().id == id


@pytest.mark.parametrize(
    "case",
    [
        Case([("agents.prod", state(FORK))], descends=False, key=NAMED),
        Case([("agents.prod", state(LAPTOP))], descends=False, key=NAMED),
        Case([("agents.prod", state(FORK))], {"agents.prod": True}, descends=False, key=NAMED),
        # a fork has the commit, and its repository is followed as well
        Case([("agents.prod", state(FORK))], elsewhere=(FORK,), key=NAMED),
        Case([("agents.prod", state(LAPTOP))], elsewhere=(LAPTOP,), service=False, key=NAMED),
        Case([("agents.prod", state(FORK))], {"agents.prod": True}, service=False, key=NAMED),
        # before the first apply of the other repository
        Case([("agents.prod", state(FORK, 0))], elsewhere=(FORK,), key=NAMED),
        # another followed folder of the same repository
        Case([("agents.prod", state(HTTPS, path="b"))], elsewhere=((HTTPS, "b"),), key=NAMED),
    ],
)
def test_the_name_of_another_repository_is_refused_with_the_way_out(case: Case) -> None:
    with pytest.raises(errors.OwnerRefused) as refused:
        case.find()
    for words in ("the name agents", HTTPS, "commit is 111111111111", "apply --adopt"):
        assert words in str(refused.value)
    assert dataclasses.replace(case, adopt=True).find().id == "agents.prod"


@pytest.mark.parametrize(
    "hint",
    ["Agents", "a_b", "-a", "a" * 64, "a" * 60, "startup-taints", "status-a", "a-0123456789ab"],
)
def test_a_name_that_cannot_be_an_id_is_refused_before_it_names_an_object(hint: str) -> None:
    case = Case([], key=replace(KEY, hint=hint))
    with pytest.raises(errors.OwnerRefused, match="cannot be the id of an owner"):
        case.find()


def test_the_check_of_a_commit_accepts_the_names_that_an_id_can_have() -> None:
    schema = json.loads((SCHEMAS / "gitops-ds.schema.json").read_text())
    assert schema["properties"]["name"]["pattern"] == state_store.NAME.pattern


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from([HTTPS, FORK, LAPTOP])),
        max_size=6,
    )
)
def test_two_repositories_never_get_the_same_id(starts: list[tuple[str, str]]) -> None:
    """Each start of a repository with its present name; an id that is found has a state."""
    states = dict[str, KnownOwner]()
    for hint, repository in starts:
        key = OwnerKey(hint, repository, "nodes", "prod")
        try:
            found = owner_identity.choose(key, states)
        except errors.OwnerRefused:
            continue
        before = states.setdefault(found.id, KnownOwner(state(repository)))
        assert same_place(before.state.repository, repository)


async def test_the_invalid_state_of_another_owner_changes_nothing() -> None:
    async with simulator.SimulatedCluster() as cluster:
        client = cluster.client()
        await state_store.save(client, "gitops-ds", *legacy(LAPTOP))
        name = state_store.config_map_name("other")
        data = {"state.json.gz": "bm90aGluZw=="}
        labels = {"app.kubernetes.io/managed-by": "gitops-ds"}
        metadata = {"name": name, "namespace": "gitops-ds", "labels": labels}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        await client.create(CONFIG_MAP, {**body, "binaryData": data})

        async def contains(commit: CommitId) -> bool:
            return True

        evidence = Evidence(contains, lambda *_: False, NOW)
        found = await owner_identity.find(client, "gitops-ds", KEY, evidence)
        assert found == FoundOwner(LAPTOP_ID)


def test_a_directory_is_elsewhere_while_it_is_another_repository(tmp_path: Path) -> None:
    directory = tmp_path / "agents"
    assert not owner_identity.is_elsewhere(str(directory), HTTPS)
    with git.Repo.init(directory) as repository:
        assert owner_identity.is_elsewhere(str(directory), HTTPS)
        repository.create_remote("origin", SSH)
    assert not owner_identity.is_elsewhere(str(directory), HTTPS)
    assert owner_identity.is_elsewhere(str(directory), FORK)
    assert not owner_identity.is_elsewhere(FORK, HTTPS)
