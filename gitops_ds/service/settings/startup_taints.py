"""The settings of startup taints."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gitops_ds.core import startup_taints
from gitops_ds.core.duration import Duration
from gitops_ds.core.errors import SettingsError
from gitops_ds.core.startup_taints import OWN, Enforce, StartupTaintPolicy
from gitops_ds.kube.apimachinery import node_eligibility
from gitops_ds.service.settings.base import (
    NonEmptyText,
    Ratio,
    SettingsGroup,
    default_duration,
    default_share,
    describe,
)

_KEY = r"([A-Za-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"


class StartupTaintSettings(SettingsGroup, frozen=True):
    """Nodes get no work before their required agents are ready."""

    taint: Annotated[
        Annotated[str, msgspec.Meta(pattern=f"^{_KEY}:(NoSchedule|NoExecute)$")],
        describe("The taint of joining nodes, KEY:EFFECT, which node pools set."),
    ] = f"{OWN.key}:{OWN.effect}"
    also_remove: Annotated[
        tuple[
            Annotated[
                str, msgspec.Meta(pattern=f"^{_KEY}(:(NoSchedule|PreferNoSchedule|NoExecute))?$")
            ],
            ...,
        ],
        describe("Startup taints of other tools that are removed with it, KEY or KEY:EFFECT."),
    ] = ()
    enforce: Annotated[
        Enforce,
        describe(
            "bootstrap only removes taints; continuous also taints a node whose required agent is "
            "no longer ready."
        ),
    ] = Enforce.BOOTSTRAP
    max_tainted: Annotated[
        Ratio, describe("The most nodes with the taint, above which continuous adds none.")
    ] = default_share("10%")
    not_ready_for: Annotated[
        Duration, describe("How long an agent is not ready until continuous adds the taint.")
    ] = default_duration("2m")
    report_after: Annotated[
        Duration,
        describe(
            "After this time a node that waits is reported, and no longer waits for agents that "
            "are suspended, halted, or do not fit."
        ),
    ] = default_duration("5m")
    mirrors: Annotated[
        tuple[NonEmptyText, ...],
        describe(
            "Prefixes of images, such as mirror.example.com/, that admission puts before the image "
            "of an agent, or in place of its registry."
        ),
    ] = ()

    def __post_init__(self) -> None:
        """Raises SettingsError for a taint that continuous would evict pods with."""
        if self.enforce is Enforce.CONTINUOUS and not self.taint.endswith(
            node_eligibility.NO_SCHEDULE
        ):
            raise SettingsError(
                "startupTaints: continuous needs a taint with the effect NoSchedule"
            )

    @property
    def policy(self) -> StartupTaintPolicy:
        """The policy of the controller."""
        return StartupTaintPolicy(
            startup_taints.parse(self.taint),
            tuple(map(startup_taints.parse, self.also_remove)),
            self.enforce,
            self.max_tainted.limit.share,
            self.max_tainted.limit.number,
            float(self.not_ready_for),
            float(self.report_after),
            self.mirrors,
        )
