"""A real sshd: the key, and above all the host's key."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.source.git.credentials.credential_values import Credentials, Password, SshKey
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch
from tests import gitservers
from tests.git.test_http import use
from tests.gitservers import SshServer

pytestmark = pytest.mark.system


async def read(repository: Repository) -> list[bytes]:
    commit = await repository.tip(Branch("main"))
    await repository.fetch(commit)
    return list((await repository.snapshot(commit)).files.values())


def test_a_key_and_a_known_host_work_also_in_a_directory_with_a_space(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    ssh_server.repository("door").commit({"x.yaml": "a: 1\n"})
    credentials = Credentials(SshKey(ssh_server.key, ssh_server.known_hosts))
    assert use(ssh_server.url("door"), tmp_path / "my 50%d cache", credentials, read) == [b"a: 1\n"]
    assert not list((tmp_path / "my 50%d cache").glob("access-*"))


def test_an_unknown_host_key_is_refused(ssh_server: SshServer, tmp_path: Path) -> None:
    credentials = Credentials(
        SshKey(ssh_server.key, b"example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFake\n")
    )
    with pytest.raises(errors.SourceDenied, match="not in known_hosts"):
        use(ssh_server.url("a"), tmp_path, credentials, read)


def test_a_changed_host_key_is_refused_with_a_warning(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    with gitservers.ssh_git_server(tmp_path / "other") as other:
        theirs = other.known_hosts.split(b" ", 1)[1]
    hosts = ssh_server.known_hosts.split(b" ", 1)[0] + b" " + theirs
    with pytest.raises(errors.SourceDenied, match="host key differs from known_hosts"):
        use(ssh_server.url("a"), tmp_path, Credentials(SshKey(ssh_server.key, hosts)), read)


def test_an_unknown_key_and_an_invalid_key(ssh_server: SshServer, tmp_path: Path) -> None:
    with pytest.raises(errors.SourceDenied, match="refused the ssh key"):
        use(
            ssh_server.url("a"),
            tmp_path,
            Credentials(SshKey(ssh_server.strange_key, ssh_server.known_hosts)),
            read,
        )
    with pytest.raises(errors.SourceDenied, match="can't be read"):
        use(
            ssh_server.url("a"),
            tmp_path,
            Credentials(SshKey(b"not a key\n", ssh_server.known_hosts)),
            read,
        )


def test_a_missing_repository(ssh_server: SshServer, tmp_path: Path) -> None:
    credentials = Credentials(SshKey(ssh_server.key, ssh_server.known_hosts))
    with pytest.raises(errors.SourceDenied, match="repository not found"):
        use(ssh_server.url("nothing"), tmp_path, credentials, read)


def test_known_hosts_are_required_and_a_password_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="known_hosts"):
        use("git@127.0.0.1:a", tmp_path, Credentials(SshKey(b"key", b"\n")), read)
    for login in (None, Password("x")):
        with pytest.raises(errors.UsageError, match="private key"):
            use("git@127.0.0.1:a", tmp_path, Credentials(login), read)


def test_a_silent_server_fails_after_the_time_limit(tmp_path: Path) -> None:
    with (
        gitservers.silent_server() as port,
        pytest.raises(errors.SourceUnreachable, match="within 1 s"),
    ):
        use(
            f"ssh://git@127.0.0.1:{port}/a",
            tmp_path,
            Credentials(SshKey(b"key", b"a b c")),
            read,
            RepositoryLimits(seconds=1),
        )
