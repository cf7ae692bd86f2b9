"""The table of commands decides which client a command gets."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import click
import pytest

from gitops_ds import cli
from gitops_ds.cli.command_table import COMMANDS
from gitops_ds.cli.parameters.options import AccessArgs
from gitops_ds.core.cluster import Cluster, ClusterReader, Identity
from gitops_ds.kube.client import connect
from gitops_ds.kube.client.rest import HttpCluster, HttpReader
from tests.cli import commands
from tests.cluster.test_bad_input import kubeconfig

METHODS = {
    protocol: {name for name in vars(protocol) if not name.startswith("_")}
    for protocol in (ClusterReader, Cluster)
}


def test_each_module_of_a_command_has_a_row() -> None:
    folder = Path(cli.__file__).parent
    modules = {file.stem: file for file in folder.glob("*.py")}
    modules |= {file.parent.name: file for file in folder.glob("*/__init__.py")}
    defined = {
        name.replace("_", "-")
        for name, file in modules.items()
        if re.search(r"^@(options|click)\.command\(", file.read_text("utf-8"), re.MULTILINE)
    }
    assert defined == set(COMMANDS), "GROUPS in gitops_ds/cli/command_table.py has the rows"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_can_write_only_if_its_row_names_a_resource(name: str, tmp_path: Path) -> None:
    async def opened() -> Cluster:
        with click.Context(commands.COMMANDS[name], info_name=name):
            args = AccessArgs(
                kubeconfig=str(kubeconfig(tmp_path, "https://127.0.0.1:1")), context=None
            )
            async with args.open_for_writes() as cluster:
                return cluster

    if COMMANDS[name].writes.cluster:
        assert isinstance(asyncio.run(opened()), HttpCluster)
    else:
        with pytest.raises(RuntimeError, match="declared to write nothing"):
            asyncio.run(opened())


async def _reader(tmp_path: Path) -> None:
    async with connect.reading(
        connect.Connection(str(kubeconfig(tmp_path, "https://127.0.0.1:1")))
    ) as cluster:
        for one in (cluster, cluster.acting_as(Identity("someone"))):
            assert type(one) is HttpReader
            assert not any(hasattr(one, name) for name in METHODS[Cluster] - METHODS[ClusterReader])


def test_what_a_command_opens_to_read_has_no_method_that_writes(tmp_path: Path) -> None:
    assert METHODS[Cluster] > {"create", "replace", "apply", "patch", "delete"}
    asyncio.run(_reader(tmp_path))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_can_push_has_an_entry_for_git(name: str) -> None:
    options = {one for parameter in commands.COMMANDS[name].params for one in parameter.opts}
    writes_elsewhere = {"run", "comment"}
    assert ("--push" in options or name in writes_elsewhere) == bool(COMMANDS[name].writes.git)
