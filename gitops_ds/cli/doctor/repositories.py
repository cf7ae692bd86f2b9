"""The checks of `doctor` for repositories: the one in the arguments, or all in the settings, which
are read like the service does. Also their trusted keys, and whether the service can measure the
gates of their rollout policies and approve their stages.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from gitops_ds.cli.doctor import result
from gitops_ds.cli.doctor.arguments import DoctorArgs
from gitops_ds.cli.doctor.result import CheckVerdict, Line
from gitops_ds.core import errors
from gitops_ds.core.objects import short
from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.rollout_gates import ProbeKind
from gitops_ds.core.rollouts.rollout_policy import Gate
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.sources.signatures import Mode, Trust, Unverified
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.deploy.pipeline import open_repository, prepare
from gitops_ds.kube.client import connect
from gitops_ds.rollouts.decisions import measured_gates
from gitops_ds.service.git import git_auth
from gitops_ds.service.git.git_source import revision_of
from gitops_ds.service.rollouts import gate_meter
from gitops_ds.service.settings.metrics import MetricsSettings
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.service.settings.service import Service
from gitops_ds.source.git import address, signatures
from gitops_ds.source.git.repository import Repository

_ADVICE = "docs/repository-access.md describes each setting"
_UNREAD = "set it with -C; it must be readable and have a commit"
_APPROVERS = "add them to repository.approvers; docs/guides/approvals.md"
_GATES = "docs/rollouts.md, section Gates; the rollout holds until it can be measured"
_NAME = "signature keys"
_WRITE = (
    'write `someone@example.com namespaces="git" ssh-ed25519 AAAA…`, a line each; '
    "docs/repository-access.md shows it"
)
_RENEW = "let their owners renew them, and put the new ones into the file"
# https://man.openbsd.org/ssh-keygen.1#ALLOWED_SIGNERS
_OPTION = r'[a-z-]+(?:="[^"]*")?'
_SIGNER = re.compile(
    rf"\S+\s+(?P<options>(?:{_OPTION}(?:,{_OPTION})*\s+)??)(?P<type>(?:ssh|ecdsa|sk)-\S+)\s+(?P<key>\S+)"
)
_BEFORE = re.compile(r'valid-before="(\d{8})(\d{4})?(\d{2})?(Z?)"')


async def examine(
    args: DoctorArgs, service: Service | None, bundles: list[Bundle]
) -> AsyncIterator[Line]:
    """Their lines; adds the bundle of each to `bundles`."""
    if service is not None and service.repositories:
        async for line in _followed(args, service, bundles):
            yield line
    if service is None or not service.repositories or args.chosen is not None:
        try:
            named = open_repository.named(args.chosen, args.path)
        except errors.UsageError as error:
            yield result.bad("repository", str(error), _UNREAD)
            return
        look = open_repository.snapshot(named, None, committed=named.where is not None)
        async for line in _read(named.display, look, args.cluster, bundles):
            yield line


async def _followed(
    args: DoctorArgs, service: Service, bundles: list[Bundle]
) -> AsyncIterator[Line]:
    async with contextlib.AsyncExitStack() as stack:
        secrets = None
        try:
            if any(
                entry.secret_ref is not None
                for repository in service.repositories
                for entry in repository.credentials
            ):
                cluster = await stack.enter_async_context(connect.reading(args.connection()))
                secrets = git_auth.ClusterSecrets(cluster, service.cluster.namespace, time.time)
        except errors.ClusterError as error:
            yield result.bad(
                "credentials", f"a Secret can't be read: {error}", "see the line of the cluster"
            )
        for settings in service.repositories:
            try:
                where = address.parse(settings.url, allow_local=settings.allow_local)
                followed = _Followed(settings, git_auth.Keyring(settings, where, secrets), service)
            except errors.GitopsError as error:
                yield result.bad("repository", str(error), _ADVICE)
                continue
            async for line in followed.trusted():
                yield line
            if args.chosen is None:
                async for line in _read(where.display, followed.snapshot(), args.cluster, bundles):
                    yield line


class _Followed(msgspec.Struct, frozen=True):
    """One repository of the settings, and its credentials."""

    settings: RepositorySettings
    own: git_auth.Keyring
    service: Service

    async def trusted(self) -> AsyncIterator[Line]:
        """The lines of its present credentials and keys, and of the required signature of its
        tip.
        """
        display, now = self.own.where.display, time.time()
        if self.settings.credentials:
            well = f"those for {display} can be read"
            yield await result.probe("credentials", well, git_auth.trouble(self.own, now), _ADVICE)
        if self.settings.verify.mode is not Mode.NONE:
            for line in await key_lines(self.settings, display, now):
                yield line
            yield await result.probe(
                "signatures", f"the tip of {display} is signed", self._untrusted(), _ADVICE
            )

    async def _untrusted(self) -> str:
        trust, revision = git_auth.trust_of(self.settings), revision_of(self.settings)
        async with self._opened() as repository:
            tip = await repository.tip(revision)
            await repository.fetch(tip)
            verification = await repository.verify(revision, tip, None, trust)
            return verification.message if isinstance(verification, Unverified) else ""

    async def snapshot(self) -> SourceTree:
        """The snapshot of its tip, as for the service."""
        async with self._opened() as repository:
            return await open_repository.snapshot_of(
                repository, await repository.tip(revision_of(self.settings)), self.settings.path
            )

    def _opened(self) -> Repository:
        return Repository(
            self.own.where,
            open_repository.cache_directory(),
            self.own,
            allowed=self.service.allowed,
        )


async def _read(
    display: str, look: Awaitable[SourceTree], cluster: str, bundles: list[Bundle]
) -> AsyncIterator[Line]:
    """The lines of a repository and of its manifests."""
    try:
        snapshot = await look
    except errors.GitopsError as error:
        yield result.bad("repository", str(error), _UNREAD)
        return
    if snapshot.commit is None:
        advice = "only commits are applied: git init, git add, git commit"
        yield result.warning("repository", f"{display} is not in Git", advice)
    else:
        yield result.ok(
            "repository",
            f"{display} at {short(snapshot.commit.id)}, {counted(len(snapshot.files), 'file')}",
        )
    try:
        prepared = prepare.prepare(snapshot, cluster=cluster)
    except errors.GitopsError as error:
        yield result.bad("manifests", str(error))
        return
    bundles.append(prepared.bundle)
    if prepared.deployable:
        count = len(prepared.bundle.manifests)
        advice = "" if count else "add agents/, or `manifests:` to gitops-ds.yaml"
        yield Line(
            "manifests",
            CheckVerdict.OK if count else CheckVerdict.WARNING,
            f"{counted(count, 'object')} can be applied",
            advice,
        )
    else:
        refused = sum(finding.refused for finding in prepared.findings)
        yield result.bad(
            "manifests",
            f"{counted(refused, 'finding')} must be fixed first",
            "`gitops-ds check` lists them",
        )


async def key_lines(settings: RepositorySettings, display: str, now: float) -> list[Line]:
    """One line without problems, else one for each problem; `now` in seconds since 1970."""
    try:
        trust = git_auth.trust_of(settings)
        openpgp = await asyncio.to_thread(signatures.openpgp_keys, trust.openpgp)
    except errors.GitopsError as error:
        return [result.bad(_NAME, str(error), "docs/repository-access.md describes each setting")]
    troubles = list(_of_signers(trust))
    ends = [end for _, end in _signers(trust)] + [key.expires for key in openpgp if not key.revoked]
    valid = sum(end is None or end > now for end in ends)
    past = len(ends) - valid + sum(key.revoked for key in openpgp)
    if not valid:
        troubles.append(
            result.bad(
                _NAME, f"{display}: no key is valid: all {past} are expired or revoked", _RENEW
            )
        )
    elif past:
        troubles.append(
            result.warning(
                _NAME, f"{display}: {past} of {past + valid} keys are expired or revoked", _RENEW
            )
        )
    return troubles or [result.ok(_NAME, f"{display}: {valid} keys are valid")]


def _of_signers(trust: Trust) -> Iterator[Line]:
    numbers = {number for number, _ in _signers(trust)}
    for number, _ in _written(trust):
        if number not in numbers:
            yield result.bad(
                _NAME, f"repository.verify.allowedSignersFile: line {number} names no key", _WRITE
            )


def _written(trust: Trust) -> list[tuple[int, str]]:
    texts = enumerate(trust.signers.decode("utf-8", "replace").splitlines(), 1)
    return [
        (number, text.strip())
        for number, text in texts
        if text.strip() and not text.lstrip().startswith("#")
    ]


def _signers(trust: Trust) -> Iterator[tuple[int, float | None]]:
    """The number of each line with a key, and the key's expiry."""
    for number, text in _written(trust):
        match = _SIGNER.match(text)
        if match is None or not _is_key(match["type"], match["key"]):
            continue
        before = _BEFORE.search(match["options"])
        yield number, _moment(before) if before else None


def _is_key(type: str, text: str) -> bool:
    """Whether the text is a key of that type: it begins with the type's name, after its length in
    four bytes.
    """
    try:
        return base64.b64decode(text, validate=True)[4:].startswith(type.encode())
    except (binascii.Error, ValueError):
        return False


def _moment(before: re.Match[str]) -> float | None:
    """A time in ssh-keygen's format; without a Z it is local time, which is UTC in a pod."""
    try:
        digits = f"{before[1]}{before[2] or '0000'}{before[3] or '00'}"
        return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


class _Used(msgspec.Struct, frozen=True):
    """A measured gate of a stage of an agent."""

    agent: str
    name: str
    kind: ProbeKind
    gate: Gate


async def gate_lines(settings: MetricsSettings, bundles: Iterable[Bundle]) -> AsyncIterator[Line]:
    """One line for the Prometheus server and one for each webhook that is not permitted; none
    without measured gates.
    """
    used = tuple(probe for bundle in bundles for probe in _used(bundle))
    queries = [probe for probe in used if probe.kind is ProbeKind.PROMETHEUS]
    if queries:
        first = queries[0]
        problem = await gate_meter.problem(settings)
        text = f"gate {first.name} of {first.agent} cannot be measured: {problem}"
        yield (
            result.bad("gates", text, _GATES)
            if problem
            else result.ok("gates", "the Prometheus server answers queries")
        )
    for probe in used:
        if probe.kind is not ProbeKind.WEBHOOK or probe.gate.webhook is None:
            continue
        if refused := gate_meter.refused(settings.webhooks, probe.gate.webhook.url):
            text = f"gate {probe.name} of {probe.agent} cannot be measured: {refused}"
            yield result.bad("gates", text, _GATES)


def _used(bundle: Bundle) -> Iterator[_Used]:
    used: dict[tuple[str, str, ProbeKind], _Used] = {}
    for agent, document in bundle.rollouts.items():
        policy = rollout_policy.decode(document)
        for stage in policy.stages:
            for probe in measured_gates.probes_of(policy, stage):
                one = _Used(agent, probe.gate, probe.kind, policy.gate(probe.gate))
                used[agent, probe.gate, probe.kind] = one
    yield from used.values()


def approver_lines(
    repositories: Iterable[RepositorySettings], bundles: Iterable[Bundle]
) -> Iterator[Line]:
    """One line for each agent with a stage that no approver of the settings can approve; no lines
    without approvers in any repository.
    """
    names = {name for repository in repositories for name in repository.approvers}
    if not names:
        return
    for bundle in bundles:
        for agent, document in sorted(bundle.rollouts.items()):
            for stage in rollout_policy.decode(document).stages:
                unknown = set(stage.approval.from_) - names if stage.approval else set()
                if not unknown:
                    continue
                never = stage.approval is not None and unknown == set(stage.approval.from_)
                effect = "can never be approved" if never else "is not approved by all of its names"
                text = (
                    f"stage {stage.name} of {agent} {effect}: the settings have no approver "
                    f"{', '.join(sorted(unknown))}"
                )
                verdict = CheckVerdict.BAD if never else CheckVerdict.WARNING
                yield Line("approvers", verdict, text, _APPROVERS)
