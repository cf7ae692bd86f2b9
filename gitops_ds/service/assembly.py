"""The parts of a service, created from its settings."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from gitops_ds.controller.controller import Controller
from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.decision import Powers
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Emit
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.kube.client.owned_bodies import OwnedBodies
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.service.context import ServiceContext
from gitops_ds.service.rollouts.gate_meter import HttpGateMeter
from gitops_ds.service.runnable import DeployerPart, ServiceParts
from gitops_ds.service.settings.service import Service
from gitops_ds.startup_taints.startup_taints import GitInputs
from gitops_ds.status import reporter

if TYPE_CHECKING:
    from gitops_ds.service.git.git_deployer import GitDeployer
    from gitops_ds.service.notifications.dispatcher import NotificationDispatcher
    from gitops_ds.service.template_deployer import TemplateDeployer


async def owned_bodies(service: Service, cluster: ClusterReader) -> OwnedBodies | None:
    """The objects of the stored states, whose bodies are kept whole from the first list on. None
    for a service without repositories.
    """
    if not service.repositories and service.templates is None:
        return None
    from gitops_ds.deploy import state_store

    states = dict[str, DeployerState]()
    with contextlib.suppress(errors.ClusterError):  # each deployer reports it, and adds its objects
        states |= await state_store.load_all(cluster, service.cluster.namespace)
    return OwnedBodies(key for state in states.values() for key in state.inventory)


def assemble(context: ServiceContext) -> ServiceParts:
    """The parts, subscribed to events. Raises UsageError or SettingsError for wrong settings."""
    service, cluster, events = context.service, context.cluster, context.events
    notifications = _notifications(context)
    # The powers observe allow no writes, so no Kubernetes events either.
    observes = service.controller.powers is Powers.OBSERVE
    emit = events.publish if observes else context.emit_recorded
    controller = _controller(context, emit)
    if context.owned is not None:
        controller.own(context.owned)
    ledger = _ledger(context)
    if ledger is not None:
        controller.attest(ledger)
    deployers = list(_deployers(context, controller, ledger))
    if service.startup_taints is not None:
        _enable_startup_taints(context, controller, deployers)
    target = reporter.StatusTarget(
        cluster,
        service.cluster.namespace,
        service.health.progress_deadline,
        service.controller.powers is not Powers.FULL,
    )
    reported = reporter.ReporterInput(
        lambda: _states(deployers),
        lambda: _sources(deployers),
        lambda: controller.observer.ages,
        context.leadership,
    )
    status = reporter.StatusReporter(target, controller.observer, reported, emit)
    events.subscribers.append(status.tracker.handle)
    for deployer in deployers:
        deployer.tracker = status.tracker
    if notifications is not None:
        of_repositories = deployers[len(deployers) - len(service.repositories) :]
        notifications.watch(status.tracker, of_repositories)
    return ServiceParts(deployers, controller, status, notifications, ledger)


def _enable_startup_taints(
    context: ServiceContext, controller: Controller, deployers: Sequence[DeployerPart]
) -> None:
    from gitops_ds.deploy import state_store
    from gitops_ds.service.git_requirements import GitRequirements

    service = context.service
    assert service.startup_taints is not None
    namespace = service.cluster.namespace
    git = GitRequirements(
        lambda: deployers, lambda: state_store.load_all(context.cluster, namespace)
    )
    inputs = GitInputs(git.applied, git.required, git.follow)
    controller.startup_taints.enable(service.startup_taints.policy, inputs)


def _states(deployers: Iterable[GitDeployer | TemplateDeployer]) -> Mapping[str, DeployerState]:
    """The state of each deployer after its first reconciliation, by the owner's id."""
    loops = [deployer.loop for deployer in deployers if deployer.loop is not None]
    return {loop.owner: loop.deployer_state for loop in loops if loop.deployer_state is not None}


def _sources(deployers: Iterable[GitDeployer | TemplateDeployer]) -> Mapping[str, SourceStatus]:
    """The status of each followed repository, by its owner's id."""
    return {status.id: status for deployer in deployers if (status := deployer.status) is not None}


def _notifications(context: ServiceContext) -> NotificationDispatcher | None:
    """The dispatcher of notifications, if the settings name receivers or forges."""
    service, events = context.service, context.events
    if not (service.notify or any(repository.forge for repository in service.repositories)):
        return None
    from gitops_ds.service.notifications import dispatcher

    notifications = dispatcher.NotificationDispatcher(
        service, context.cluster, events.publish, context.leadership
    )
    events.subscribers.append(notifications.handle)
    return notifications


def _ledger(context: ServiceContext) -> RolloutLedger | None:
    """The ledger of the service that deploys: beside a controller alone, `gitops-ds apply` writes
    records too.
    """
    service, whole = context.service, context.owned.whole if context.owned is not None else None
    if not service.repositories and service.templates is None:
        return None
    return RolloutLedger(context.cluster, service.cluster.namespace, whole)


def _deployers(
    context: ServiceContext, controller: Controller, ledger: RolloutLedger | None
) -> Iterable[GitDeployer | TemplateDeployer]:
    """The deployer of the templates in the cluster, and one for each repository. A service without
    either paces the agents of all owners.
    """
    service = context.service
    if not service.repositories and service.templates is None:
        return
    controller.claim()
    # Git, the renderer and the scheduler take 10 MiB, which a controller alone does not need.
    from gitops_ds.deploy.object_claims import Claims, Rank
    from gitops_ds.service import prepare_process, template_deployer
    from gitops_ds.service.deployer_context import DeployerContext
    from gitops_ds.service.git import git_deployer
    from gitops_ds.source.sandbox import memory

    with_templates = int(service.templates is not None)
    claims = Claims({Rank.GIT: len(service.repositories), Rank.TEMPLATES: with_templates})
    if context.owned is not None:
        claims.bodies = context.owned
    shared = DeployerContext(
        **msgspec.structs.asdict(context),
        claim=controller.claim,
        known_pods=controller.observer.known_pods,
        ledger=ledger,
        claims=claims,
        preparing=prepare_process.Preparing(
            memory.here(), len(service.repositories) + with_templates
        ),
    )
    if (chosen := service.chosen_templates) is not None:
        part = template_deployer.TemplateDeployer(shared, chosen)
        shared.owners[part.owner] = template_deployer.NAME
        controller.claim(part.owner)
        yield part
    for settings in service.repositories:
        yield git_deployer.GitDeployer(shared, settings)


def _controller(context: ServiceContext, emit: Emit) -> Controller:
    """The controller, which runs with all powers, because the page and the metrics need it."""
    service, cluster, clock = context.service, context.cluster, context.clock
    controller = Controller(
        cluster, service.controller.powers, emit, clock=clock, chance=random.random
    )
    controller.follow(context.leadership)
    controller.observer.measure_with(
        HttpGateMeter(service.metrics, cluster, service.cluster.name, clock)
    )
    if service.direct:
        controller.observer.observe_room()
    controller.observer.runs_on(service.own_node)
    return controller
