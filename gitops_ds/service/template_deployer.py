"""The deployer of templates that are kept in the cluster, put together from the settings."""

from __future__ import annotations

import random
import time

from gitops_ds.deployer import loop as deployer_loop
from gitops_ds.deployer import state_store
from gitops_ds.deployer.object_claims import Claims, Rank
from gitops_ds.deployer.reconcile import ApplyOptions, DeployTarget
from gitops_ds.deployer.template_object import Chosen
from gitops_ds.deployer.template_source import Templates
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.events.base import Emit
from gitops_ds.model.objects import CONFIG_MAP
from gitops_ds.redaction.events import Discreet
from gitops_ds.service import event_recorder, runnable
from gitops_ds.service.prepare_process import Preparing
from gitops_ds.settings.service import Service
from gitops_ds.telemetry.kube_events import InvolvedObject

RETRY = 15.0  # seconds


class Templating(runnable.DeployerPart):
    """The templates of a cluster, looked after as long as `run` runs."""

    def __init__(
        self,
        service: Service,
        chosen: Chosen,
        cluster: Cluster,
        claims: Claims,
        heard: tuple[Emit, Preparing],
    ) -> None:
        """Nothing is watched until `run`. `heard`: who hears of it, and who renders the templates."""
        self._chosen = chosen
        self._asked: ApplyOptions = service.apply_options
        self._cluster, self._claims, (self._tell, self._preparing) = cluster, claims, heard
        self._stopping = False

    @property
    def owner(self) -> str:
        """The id under which it owns objects."""
        return self._chosen.owner

    @property
    def unready(self) -> str:
        """Why nothing was applied yet."""
        over = self.loop is not None and self.loop.first_reconciliation.is_set()
        return "" if over else "the first pass over the templates in the cluster is not over"

    def stop(self) -> None:
        """Ends `run` after the pass that goes on."""
        self._stopping = True
        if self.loop is not None:
            self.loop.stop()

    async def run(self) -> None:
        """Watches, and applies what changed, until `stop`."""
        chosen = self._chosen
        place = DeployTarget(self._cluster, chosen.home, chosen.owner, "templates in the cluster")
        about = InvolvedObject(
            CONFIG_MAP.api_version,
            CONFIG_MAP.kind,
            place.namespace,
            state_store.config_map_name(place.owner),
        )
        async with event_recorder.beside(self._cluster, about, self._tell) as emit:
            tell = Discreet(emit)
            source = Templates(
                self._cluster, chosen, tell, time.time, render=self._preparing.rendered
            )
            timing = deployer_loop.LoopTiming(RETRY, time.time, random.random)
            loop = self.loop = deployer_loop.Loop(
                source.as_source(), place, self._asked, tell, timing
            )
            loop.join(self._claims, Rank.TEMPLATES)
            if self._stopping:
                return
            source.begin(loop.request_soon, random.random)
            try:
                await loop.run()
            finally:
                source.stop()
