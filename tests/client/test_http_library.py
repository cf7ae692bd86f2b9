"""The certificates of the system are read for the requests that need them, and for no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import gitservers

# Without a library that `-c` would find in the current directory.
PYTHON = (sys.executable, "-P", "-c")

EMPTY = """
import json, {module}
from aiohttp import connector
from gitops_ds.core.http_library import system_trust
contexts = (connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED, system_trust())
print(json.dumps([context.cert_store_stats()["x509_ca"] for context in contexts]))
"""
EXTENSIONS = """
import json, os, sys, {module}
is_set = "FROZENLIST_NO_EXTENSIONS" in os.environ
print(json.dumps(["frozenlist._frozenlist" in sys.modules, is_set]))
"""
IN_THREADS = """
import json, ssl, threading
from gitops_ds.core import http_library
counts = []
def count():
    counts.append(ssl.create_default_context().cert_store_stats()["x509_ca"])
with http_library._without_certificates():
    count()
    other = threading.Thread(target=count)
    other.start()
    other.join()
count()
print(json.dumps(counts))
"""
REQUESTS = """
import asyncio, json, pathlib, ssl, sys
from gitops_ds.forges.forge_access import ForgeAccess, ForgeToken
from gitops_ds.forges.client import Forge
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.service.notifications import sender
from gitops_ds.service.rollouts import gate_meter
from gitops_ds.service.settings.service import ReceiverSettings
from gitops_ds.notify.notifications import MessageFormat, NotificationBatch
from aiohttp import web  # after ours: its own contexts are empty

key, certificate, directory = sys.argv[1:]

async def answer(request):
    return web.json_response({"head": {"sha": "1" * 40}})

async def to_a_receiver(url):
    file = pathlib.Path(directory, "url")
    file.write_text(url)
    receiver = ReceiverSettings("chat", str(file), MessageFormat.JSON)
    await sender.post(receiver, NotificationBatch([], 0, "eu-1"))

async def to_metrics(url):
    await gate_meter.send(gate_meter.GateCall(url, 30.0))

async def to_a_forge(url):
    access = ForgeAccess(ForgeKind.GITEA, url, ForgeToken("TOKEN", "a-token"), "acme/agents")
    async with Forge(access, 0) as forge:
        await forge.head(7)

async def main():
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    results = []
    for send in (to_a_receiver, to_metrics, to_a_forge):
        try:
            await send(url)
            results.append("sent")
        except Exception as error:
            results.append(str(error))
    print(json.dumps(results))

asyncio.run(main())
"""


def result(script: str, authority: Path, *arguments: object) -> list[object]:
    """What the script prints, in a process of a system that trusts this authority only."""
    environment = {**os.environ, "SSL_CERT_FILE": str(authority), "SSL_CERT_DIR": os.devnull}
    command = (*PYTHON, script, *map(str, arguments))
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    values: list[object] = json.loads(run.stdout)
    return values


@pytest.mark.parametrize("module", ["gitops_ds.kube.client.rest", "gitops_ds.service.web.server"])
def test_an_import_reads_no_certificates(module: str) -> None:
    _, _, authority = gitservers._certificates()
    assert result(EMPTY.format(module=module), authority) == [0, 0, 1]


@pytest.mark.parametrize("module", ["gitops_ds.kube.client.rest", "gitops_ds.service.web.server"])
def test_an_import_loads_no_cpp_library_and_keeps_the_environment(module: str) -> None:
    assert result(EXTENSIONS.format(module=module), Path(os.devnull)) == [False, False]


def test_another_thread_has_the_certificates_during_the_import() -> None:
    _, _, authority = gitservers._certificates()
    assert result(IN_THREADS, authority) == [0, 1, 1]


@pytest.mark.slow
def test_each_client_trusts_the_authorities_of_the_system_only(tmp_path: Path) -> None:
    key, certificate, authority = gitservers._certificates()
    assert result(REQUESTS, authority, key, certificate, tmp_path) == ["sent"] * 3
    empty = tmp_path / "empty.pem"
    empty.touch()
    errors = result(REQUESTS, empty, key, certificate, tmp_path)
    assert ["certificate" in str(error) for error in errors] == [True] * 3
