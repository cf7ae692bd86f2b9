"""The deployer of one repository. Only a service with repositories imports it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import Push
from gitops_ds.core.events.base import Emit, Event, EventOrigin
from gitops_ds.core.events.commits import NewCommit
from gitops_ds.core.events.deployer import Reconciled, SourceChanged
from gitops_ds.core.events.requests import PushForwarded
from gitops_ds.core.objects import CONFIG_MAP
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import requests, state_store
from gitops_ds.deploy.object_claims import Rank
from gitops_ds.deploy.owner_identity import FoundOwner
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.kube.client.supervisor import Supervisor, ended
from gitops_ds.notify.kube_events import InvolvedObject
from gitops_ds.service import kube_event_writer, runnable
from gitops_ds.service.deployer_context import DeployerContext
from gitops_ds.service.git import git_auth, git_schedule, git_source
from gitops_ds.service.git.git_schedule import PollInterval
from gitops_ds.service.git.git_source import GitSource
from gitops_ds.service.git.git_startup import Startup
from gitops_ds.service.rollouts.approval_writer import ApprovalWriter, ForgeReviews, Reviews
from gitops_ds.service.rollouts.published_reports import ClusterWatch, OwnPlace, ReportPublisher
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.service.rollouts.revert_writer import RevertWriter
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from gitops_ds.status.cluster_reports import ClusterRow, ReportInput


class GitDeployer(runnable.DeployerPart):
    """Follows one repository while `run` runs. The loop starts once the owner's id is read.

    Attempts to read a repository are repeated, and do not delay other repositories. Meanwhile the
    last applied commit stays applied, if the local copy contains it.
    """

    def __init__(self, context: DeployerContext, settings: RepositorySettings) -> None:
        """Raises UsageError for an invalid address or `match`."""
        super().__init__(context.leadership)
        self._context, self._settings = context, settings
        self._trigger = git_schedule.trigger_of(settings)
        self._polling = PollInterval(settings.interval, time.monotonic)
        self._address = address.parse(
            settings.url, allow_local=context.at_desk or settings.allow_local
        )
        git_source.revision_of(settings)  # raises UsageError for an invalid revision
        secrets = git_auth.ClusterSecrets(
            context.cluster, context.service.cluster.namespace, time.time
        )
        self._keyring = git_auth.Keyring(settings, self._address, secrets, at_desk=context.at_desk)
        self._startup = Startup(context, settings, self._address)
        self._forwards: set[asyncio.Task[None]] = set()
        self.repository: Repository | None = None
        self._reverts: RevertWriter | None = None
        self._reports: ReportPublisher | None = None
        self._approvals: ApprovalWriter | None = None
        self._watch: ClusterWatch | None = None
        self._knows_required = False

    @property
    def unready(self) -> str:
        """Why the first reconciliation is incomplete; empty after it, also if it failed."""
        over = self.loop.first_reconciliation.is_set() if self.loop else self._startup.attempted
        return "" if over else f"first reconciliation of {self._address.display} is incomplete"

    @property
    def status(self) -> SourceStatus | None:
        """The status of the loop; before it starts, that of the last failed attempt."""
        if self.loop is not None or not self._leadership.leads:
            return super().status
        return self._startup.status

    @property
    def knows_required(self) -> bool:
        """Also while Git cannot be reached after a restart."""
        return self._knows_required or super().knows_required

    @property
    def seconds_without_progress(self) -> float:
        """Those of the loop, or of a preparation that does not end at its limit."""
        return max(super().seconds_without_progress, self._context.preparing.seconds_over_limit)

    @property
    def requires_agents(self) -> bool:
        """Whether nodes may wait for the agents of the repository."""
        options = self._context.service.apply_options_of(self._settings)
        return options.allowed.required_for_work

    @property
    def settings(self) -> RepositorySettings:
        """The settings of the repository."""
        return self._settings

    @property
    def id(self) -> str:
        """The owner's id, and so the name of its state; empty before the loop starts."""
        return self.loop.owner if self.loop else ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The names of the repository in webhooks."""
        names = (self._address.display, open_repository.identity(self._address))
        return tuple(dict.fromkeys(names))

    def wake(self, push: Push) -> None:
        """Requests a reconciliation after a push, from the leader if this replica is not."""
        self._polling.webhook_received()
        if self.loop is None:
            self._startup.wake()
            return
        self.loop.request(push.commit)
        if not self._leadership.leads:
            place = (self._context.service.cluster.namespace, self.id)
            forward = asyncio.create_task(
                requests.forward_push(self._context.unfenced, place, push, time.time())
            )
            self._forwards.add(forward)
            forward.add_done_callback(self._forwards.discard)

    def stop(self) -> None:
        """Ends `run` after the current reconciliation."""
        self._startup.stop()
        if self.loop is not None:
            self.loop.stop()

    async def run(self) -> None:
        """Reads the owner's id, and then runs the loop. Raises GitopsError if a retry cannot
        help.
        """
        context = self._context
        async with Repository(
            self._address,
            open_repository.cache_directory(),
            self._keyring,
            git_source.limits_of(self._settings),
            context.service.allowed,
            turns=context.fetching,
        ) as repository:
            self.repository = repository
            cluster = context.service.cluster.name
            source = GitSource(repository, self._settings, cluster, context.preparing)
            await self._claim_known(source.name)
            owner = await self._startup.run(source, lambda: self._leadership.leads)
            if owner is None:
                return
            async with self._loop_of(source, owner) as loop:
                self.begin(loop)
                schedule = git_schedule.Schedule(self._trigger, self._tick)
                try:
                    await loop.run()
                finally:
                    schedule.shutdown()

    async def _claim_known(self, repository: str) -> None:
        """Claims the owners of the states of this repository: a rollout continues while its server
        cannot be reached.
        """
        context, namespace = self._context, self._context.service.cluster.namespace
        with contextlib.suppress(errors.ClusterError):
            owners = await state_store.owners(context.cluster, namespace, repository)
            context.claim(*owners, approvers=self._settings.approvers)
            states = [await state_store.load(context.cluster, namespace, id) for id in owners]
            for state in states:
                context.claims.bodies.add(state.inventory)
            self._knows_required = any(state.knows_required for state in states)

    @contextlib.asynccontextmanager
    async def _loop_of(
        self, source: GitSource, owner: FoundOwner
    ) -> AsyncIterator[deployer_loop.Loop]:
        """The loop of an owner."""
        context, settings, id = self._context, self._settings, owner.id
        context.claim(id, approvers=settings.approvers)
        target = DeployTarget(
            context.cluster,
            context.service.cluster.namespace,
            id,
            source.name,
            settings.path,
            contains=source.contains,
            unused=owner.unused,
            attested=context.attested,
            known_pods=context.known_pods,
            announce=context.announce,
        )
        state = InvolvedObject(
            CONFIG_MAP.api_version,
            CONFIG_MAP.kind,
            target.namespace,
            state_store.config_map_name(id),
        )
        origin = EventOrigin(id, open_repository.title(self._address, settings.path))
        async with kube_event_writer.of_deployer(
            context.cluster, state, context.events, origin
        ) as emit:
            timing = deployer_loop.LoopTiming(settings.retry_interval, context.clock, random.random)
            options = context.service.apply_options_of(settings)
            loop = deployer_loop.Loop(source.revisions(), target, options, emit, timing)
            loop.reconciler.join(context.claims, Rank.GIT)
            tasks = self._start_writers(source, loop, emit)
            try:
                with context.events.subscribed(id, self._handle):
                    yield loop
            finally:
                await ended(*tasks)

    def _start_writers(
        self, source: GitSource, loop: deployer_loop.Loop, emit: Emit
    ) -> list[asyncio.Task[None]]:
        """The tasks beside a loop: reverts, the report of the cluster, the clusters of the page."""
        supervisor, listen = Supervisor(emit, time.time), self._context.service.listen
        shared = RepositoryContext(
            source.repository,
            self._settings,
            emit,
            self._context.clock,
            random.random,
            lambda: loop.stopped_rollouts,
        )
        reverts = self._reverts = RevertWriter(shared, source.prepared, source.causes, loop.request)
        reports = self._reports = ReportPublisher(shared, lambda: self._own_place(loop))
        approvals = self._approvals = ApprovalWriter(
            shared, self._context.cluster, self._reviews(source.repository), self._context.ledger
        )
        tasks = [
            supervisor.start("reverts", reverts.run),
            supervisor.start("approvals of stages", approvals.run),
            supervisor.start("cluster reports", reports.run),
            supervisor.start("agents of cluster reports", self._wake_reports),
        ]
        if listen.page.served_at(listen.address) is not None:
            watch = self._watch = ClusterWatch(
                shared, lambda: loop.bundle.orders if loop.bundle else {}
            )
            tasks.append(supervisor.start("clusters of the page", watch.run))
        return tasks

    def _reviews(self, repository: Repository) -> Reviews | None:
        """Reads the reviews of a stage; None without a forge."""
        settings = self._settings
        if settings.forge is None:
            return None
        branch = partial(git_source.branch_of, repository, settings)
        reviews = ForgeReviews(repository, self._address, settings.forge, settings.path, branch)
        return reviews.find

    @property
    def clusters(self) -> Sequence[ClusterRow]:
        """All clusters of the repository in their order; none without a page."""
        return self._watch.rows if self._watch else ()

    def _own_place(self, loop: deployer_loop.Loop) -> OwnPlace | None:
        """The place of this cluster in the order; None while that or its status is unknown."""
        bundle, status, state = loop.bundle, loop.status, loop.deployer_state
        if bundle is None or status is None or state is None or self.tracker is None:
            return None
        agents = [agent for agent in self.tracker.agents() if agent.seen.daemonset.uid]
        own = [agent for agent in agents if agent.owner == loop.owner]
        daemonsets = {key for key in bundle.manifests if key.is_daemonset}
        url = self._context.service.listen.page.url
        facts = bundle.cluster
        inputs = ReportInput(facts.name, status, state, daemonsets, own, url, self._settings.path)
        return OwnPlace(facts.order, inputs)

    async def _wake_reports(self) -> None:
        """Wakes the publisher of reports after each change of an agent."""
        if self.tracker is None:
            return
        async for _ in self.tracker.changed():
            if self._reports is not None:
                self._reports.wake()

    def _handle(self, event: Event) -> None:
        """Adapts the polls to an event of the loop, and wakes the tasks beside it."""
        match event:
            case NewCommit():
                self._polling.commit_found()
            case PushForwarded():
                self._polling.webhook_received()
            case Reconciled():
                for task in (self._reverts, self._approvals, self._reports):
                    if task is not None:
                        task.wake()
            case SourceChanged() if self._reports is not None:
                self._reports.wake()
            case _:
                pass

    def _tick(self) -> None:
        # Webhooks reduce the polls of an interval, but not those of a crontab.
        if self.loop is not None and (
            self._settings.schedule or self._polling.due() or self._waits
        ):
            self.loop.request()

    @property
    def _waits(self) -> bool:
        """Whether the tip waits for reports of other clusters, which no webhook announces."""
        status = self.loop.status if self.loop else None
        return status is not None and status.condition is Condition.WAITING
