"""One manifest as a file, and two verdicts on the same bytes: our check, and strict dry runs of an
API server.

A server judges a create, and then, where it took that, the server-side apply by which we deploy:
either can refuse.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random
from typing import Any
from urllib.parse import quote

import aiohttp

from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import group_of
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.kube.apimachinery import builtin_resources
from tests.controlplane import ControlPlane
from tests.truth import bases, mutations
from tests.truth.bases import Body

# Errors about the state of this cluster, which are not verdicts about the manifest.
OF_THIS_CLUSTER = re.compile(
    r"failed to allocate IP|provided IP is already allocated|namespaces \\?\"[^\"]*\\?\" not "
    r"found|already exists"
    r"|this cluster is not configured for dual-stack|attempting to grant RBAC permissions not "
    r"currently held"
)


# Values outside of the rules (docs/api-server-differences.md), which a server may refuse although
# the check accepts them.
NOT_CLAIMED = re.compile(
    r"Service \\?\"[^\"]*\\?\" is invalid: .*(clusterIP|nodePort|ipFamil)|runAsUserName|seccomp "
    r"type in annotation"
)


@dataclass(frozen=True)
class Case:
    """A manifest by its seed and number: the mutation, the file, and its request."""

    number: int
    mutations: tuple[str, ...]
    body: Body
    data: bytes
    path: str


@dataclass(frozen=True)
class Judged:
    """Both verdicts: the blocking findings, and the server's answers to a create and to an apply
    (empty: accepted).
    """

    case: Case
    findings: tuple[Finding, ...]
    create: str
    apply: str

    @property
    def decided(self) -> bool:
        """Whether the server's answer is one about the manifest."""
        return not OF_THIS_CLUSTER.search(self.create + self.apply)

    @property
    def agrees(self) -> bool:
        """Whether both take it or both refuse it."""
        return bool(self.findings) == bool(self.create or self.apply)

    def __str__(self) -> str:
        ours = (
            "; ".join(f"{finding.rule} {finding.message}" for finding in self.findings)
            or "nothing against it"
        )
        server = (
            f"create: {_words(self.create)}"
            if self.create
            else f"apply: {_words(self.apply)}"
            if self.apply
            else "takes it"
        )
        head = f"#{self.case.number} {self.case.body.get('kind')} {list(self.case.mutations)}"
        return f"{head}\n  we: {ours[:400]}\n  the server: {server[:600]}"


def cases(seed: int, count: int) -> Iterator[Case]:
    """The first manifests of a seed: six of seven are DaemonSets, two thirds of them random."""
    daemonsets, companions = bases.real()
    for number in range(count):
        random = Random(f"{seed}/{number}")
        pick = random.random()
        base = (
            random.choice(companions)
            if pick < 1 / 7
            else random.choice(daemonsets)
            if pick < 0.43
            else bases.generated(random)
        )
        body, done = mutations.mutated(random, base)
        data, written = _written(random, body)
        yield Case(number, (*done, *written), body, data, path_of(base, body))


def path_of(base: Body, body: Body) -> str:
    """The address of the collection to which the manifest belongs."""
    resource = builtin_resources.RESOURCES[group_of(base), base["kind"]]
    namespace = "/namespaces/default" if resource.namespaced else ""
    version = base["apiVersion"]
    return f"/{'apis' if '/' in version else 'api'}/{version}{namespace}/{resource.plural}"


def _written(random: Random, body: Body) -> tuple[bytes, tuple[str, ...]]:
    """As JSON, or as YAML, in which a line may be there twice or a text have lost its quotes."""
    if random.random() < 0.6:
        return json.dumps(body, ensure_ascii=False).encode(), ()
    lines = list(_yaml(body, 0))
    what = random.random()
    quoted = [
        index
        for index, line in enumerate(lines)
        if line.endswith('"')
        and len(line) < 120
        and not line.startswith(('"kind"', '"apiVersion"', '  "namespace"', '  "name"'))
    ]
    if what < 0.1:
        index = random.choice(
            [
                index
                for index, line in enumerate(lines)
                if ": " in line and not line.lstrip().startswith("- ")
            ]
        )
        lines.insert(index, lines[index])
        return "\n".join(lines).encode(), (f"line twice: {lines[index].strip()[:60]}",)
    if what < 0.25 and quoted:
        index = random.choice(quoted)
        lines[index] = re.sub(
            r'"([^"\\]*)"$',
            random.choice(
                ("\\1", "yes", "0644", "1e3", "~", "1_000", "012", "0x1F", "12:30", "null")
            ),
            lines[index],
        )
        return "\n".join(lines).encode(), (f"no quotes: {lines[index].strip()[:60]}",)
    return "\n".join(lines).encode(), ()


def _yaml(value: Any, depth: int) -> Iterator[str]:
    pad = "  " * depth
    for key, inner in value.items() if isinstance(value, dict) else ((None, one) for one in value):
        start = f"{pad}{json.dumps(key, ensure_ascii=False)}:" if key is not None else f"{pad}-"
        if isinstance(inner, (dict, list)) and inner:
            yield start
            yield from _yaml(inner, depth + 1)
        else:
            yield f"{start} {json.dumps(inner, ensure_ascii=False)}"


def ours(data: bytes) -> tuple[Finding, ...]:
    """The blocking findings of our check for a file."""
    prepared = prepare.prepare(
        SourceTree(None, {PurePosixPath("manifest.yaml"): data}), namespace="default"
    )
    reported = tuple(finding for finding in prepared.findings if finding.refused)
    assert prepared.deployable == (not reported)
    crashed = [finding for finding in prepared.findings if finding.rule == "DS904"]
    assert not crashed, crashed
    return reported


async def judged(server: ControlPlane, expected: Sequence[Case], at_once: int = 24) -> list[Judged]:
    """Every case, by both."""
    context = ssl.create_default_context(cafile=str(server.ca))
    headers = {"Authorization": f"Bearer {server.token}"}
    gate = asyncio.Semaphore(at_once)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=at_once, ssl=context), headers=headers
    ) as session:

        async def one(case: Case) -> Judged:
            async with gate:
                create = await _ask(
                    session, "POST", f"{server.url}{case.path}?", "application/yaml", case.data
                )
                apply = ""
                name = (
                    case.body.get("metadata", {}).get("name")
                    if isinstance(case.body.get("metadata"), dict)
                    else None
                )
                if not create and isinstance(name, str) and name:
                    url = f"{server.url}{case.path}/{quote(name, safe='')}?force=true&"
                    apply = await _ask(
                        session, "PATCH", url, "application/apply-patch+yaml", case.data
                    )
            return Judged(case, ours(case.data), create, apply)

        return await asyncio.gather(*map(one, expected))


async def _ask(
    session: aiohttp.ClientSession, method: str, url: str, content_type: str, data: bytes
) -> str:
    url_of_dry_run = f"{url}dryRun=All&fieldValidation=Strict&fieldManager=truth"
    async with session.request(
        method, url_of_dry_run, data=data, headers={"Content-Type": content_type}
    ) as reply:
        text = await reply.text()
        assert reply.status not in (429, 503, 504), text
        return "" if reply.status < 300 else text or str(reply.status)


def _words(reply: str) -> str:
    try:
        return str(json.loads(reply)["message"])
    except (ValueError, KeyError, TypeError):
        return reply


def summary(seed: int, judgements: Sequence[Judged]) -> str:
    """Shares and every difference, the server's refusals that we pass first."""
    decided = [judgement for judgement in judgements if judgement.decided]
    wrong = [one for one in decided if not one.agrees]
    refused = Counter(bool(one.create or one.apply) for one in decided)
    lines = [f"seed {seed}: {one}" for one in sorted(wrong, key=lambda one: bool(one.findings))]
    share = 1 - len(wrong) / len(decided)
    passed = sum(not one.findings for one in wrong)
    alone = sum(bool(one.apply) for one in decided)
    lines.append(
        f"{len(decided)} verdicts ({refused[True]} refused by the server, {alone} of them by apply "
        "alone): "
        f"{share:.2%} agree; we pass {passed} that it refuses, refuse {len(wrong) - passed} that "
        "it takes"
    )
    return "\n".join(lines)
