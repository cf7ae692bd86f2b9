"""The deployer of the templates in the cluster, from the settings."""

from __future__ import annotations

import random

from gitops_ds.core.deployer_state import TEMPLATES
from gitops_ds.core.events.base import EventOrigin
from gitops_ds.core.objects import CONFIG_MAP
from gitops_ds.core.redaction.events import RedactingEmit
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import state_store
from gitops_ds.deploy.object_claims import Rank
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.deploy.templates.template_selector import TemplateSelector
from gitops_ds.deploy.templates.template_source import Templates
from gitops_ds.notify.kube_events import InvolvedObject
from gitops_ds.service import kube_event_writer, runnable
from gitops_ds.service.deployer_context import DeployerContext

NAME = "templates in the cluster"
RETRY = 15.0  # seconds


class TemplateDeployer(runnable.DeployerPart):
    """Applies the templates of a cluster while `run` runs."""

    def __init__(self, context: DeployerContext, chosen: TemplateSelector) -> None:
        """`chosen` selects the ConfigMaps and Secrets with templates."""
        super().__init__(context.leadership)
        self._context, self._chosen = context, chosen
        self._stopping = False

    @property
    def requires_agents(self) -> bool:
        """False: who writes templates into the cluster lets no node wait."""
        return False

    @property
    def owner(self) -> str:
        """The id under which it owns objects."""
        return self._chosen.owner

    @property
    def unready(self) -> str:
        """Why the first reconciliation is incomplete; empty after it."""
        over = self.loop is not None and self.loop.first_reconciliation.is_set()
        return "" if over else "first reconciliation of the templates in the cluster is incomplete"

    def stop(self) -> None:
        """Ends `run` after the current reconciliation."""
        self._stopping = True
        if self.loop is not None:
            self.loop.stop()

    async def run(self) -> None:
        """Watches the templates and applies them until `stop`."""
        context, chosen = self._context, self._chosen
        place = DeployTarget(
            context.cluster,
            chosen.home,
            chosen.owner,
            TEMPLATES,
            attested=context.attested,
            known_pods=context.known_pods,
            announce=context.announce,
        )
        about = InvolvedObject(
            CONFIG_MAP.api_version,
            CONFIG_MAP.kind,
            place.namespace,
            state_store.config_map_name(place.owner),
        )
        origin = EventOrigin(chosen.owner, NAME)
        async with kube_event_writer.of_deployer(
            context.cluster, about, context.events, origin
        ) as emit:
            redacted = RedactingEmit(emit)
            source = Templates(
                context.cluster, chosen, redacted, context.clock, render=context.preparing.rendered
            )
            timing = deployer_loop.LoopTiming(RETRY, context.clock, random.random)
            loop = deployer_loop.Loop(
                source.as_source(), place, context.service.apply_options, redacted, timing
            )
            self.begin(loop)
            loop.reconciler.join(context.claims, Rank.TEMPLATES)
            if self._stopping:
                return
            source.begin(loop.reconciler.request_soon, random.random)
            try:
                await loop.run()
            finally:
                source.stop()
