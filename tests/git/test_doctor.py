"""The checks of doctor on credentials and signatures, before the service uses them."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.cli.doctor import checks, result
from gitops_ds.cli.doctor.arguments import DoctorArgs
from gitops_ds.cli.doctor.result import CheckVerdict
from gitops_ds.service.git import git_auth
from gitops_ds.service.settings.base import decode
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.source.git import address
from tests import signing
from tests.cli import commands
from tests.gitservers import HttpServer

pytestmark = pytest.mark.system
KEY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32)).decode()


def trouble(settings: dict[str, Any], now: float = 0.0) -> str:
    decoded = decode(RepositorySettings, settings)
    return asyncio.run(
        git_auth.trouble(git_auth.Keyring(decoded, address.parse(decoded.url), None), now)
    )


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("good", ""),
        ("another host", "known_hosts does not name git.example.com"),
        ("a passphrase", "without a passphrase"),
        ("a public key", "must be a private key"),
    ],
)
def test_an_ssh_key_and_known_hosts_are_checked(tmp_path: Path, case: str, words: str) -> None:
    key = signing.ssh_signer(tmp_path, "key").key
    if case == "a passphrase":
        subprocess.run(
            ("ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(key)), check=True
        )
    hosts = tmp_path / "hosts"
    hosts.write_text(
        f"{'other.example.com' if case == 'another host' else 'git.example.com'} ssh-ed25519 "
        f"{KEY}\n"
    )
    file = f"{key}.pub" if case == "a public key" else str(key)
    settings = {
        "url": "git@git.example.com:a",
        "credentials": {"sshKeyFile": file, "knownHostsFile": str(hosts)},
    }
    problems = trouble(settings)
    assert words in problems
    assert bool(words) == bool(problems)


def test_an_expired_or_invalid_authority_is_reported(
    http_server: HttpServer, tmp_path: Path
) -> None:
    file = tmp_path / "ca"
    settings = {"url": "https://git.example.com/a", "credentials": {"caFile": str(file)}}
    file.write_bytes(http_server.authority)
    assert trouble(settings) == ""
    assert "has expired" in trouble(settings, now=4e9)
    file.write_text("no certificate")
    assert "PEM" in trouble(settings)


def test_credentials_for_another_server_are_reported() -> None:
    settings = {
        "url": "https://git.example.com/a",
        "credentials": [{"match": "https://other.example.com", "tokenFile": "/x"}],
    }
    assert "none of the 1 sets of credentials matches https://git.example.com/a" in trouble(
        settings
    )


def test_doctor_reports_a_missing_file_and_an_unsigned_tip(
    http_server: HttpServer, tmp_path: Path
) -> None:
    http_server.anonymous = True
    upstream = http_server.repository("a")
    upstream.commit({"x.yaml": "a: 1\n"})
    ada = signing.ssh_signer(tmp_path, "ada@example.com")
    (tmp_path / "signers").write_bytes(ada.allowed())
    (tmp_path / "ca").write_bytes(http_server.authority)
    (tmp_path / "kubeconfig").write_text("{}")
    file = tmp_path / "settings.yaml"

    def lines(token: str) -> dict[str, result.Line]:
        file.write_text(
            f"repository:\n  url: {http_server.url}/a\n  branch: main\n"
            f"  credentials: {{caFile: {tmp_path}/ca{token}}}\n"
            f"  verify: {{mode: head, allowedSignersFile: {tmp_path}/signers}}\n"
        )

        async def run() -> dict[str, result.Line]:
            access = {"settings": file, "kubeconfig": tmp_path / "kubeconfig"}
            args = commands.parsed(DoctorArgs, "doctor", **access)
            return {line.name: line async for line in checks.examine(args)}

        return asyncio.run(run())

    missing = lines(f", tokenFile: {tmp_path}/none")
    assert missing["credentials"].verdict is CheckVerdict.BAD
    assert "repository.credentials.tokenFile" in missing["credentials"].message
    results = lines("")
    assert results["credentials"].verdict is CheckVerdict.OK
    assert "is not signed" in results["signatures"].message
    signing.commit(upstream, "2", *ada.config())
    assert lines("")["signatures"].verdict is CheckVerdict.OK
