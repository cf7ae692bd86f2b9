"""Startup taints: an agent that nodes wait for must tolerate them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gitops_ds.apimachinery import daemonsets, node_eligibility
from gitops_ds.checks.engine.rule import POD, Check, Spec, Violation, items, of_daemonsets
from gitops_ds.model import names, startup_taints
from gitops_ds.model.finding import Fix, Mend
from gitops_ds.model.live import Taint
from gitops_ds.model.objects import Body, Path

_TOLERATIONS: Final[Path] = (*POD, "tolerations")
ANNOTATION: Final[Path] = ("metadata", "annotations", names.REQUIRED_FOR_WORK)
_ANY_EFFECT: Final = (node_eligibility.NO_SCHEDULE, node_eligibility.NO_EXECUTE)


def untolerated(pod: Spec, taints: Iterable[Taint]) -> list[Taint]:
    """The taints with a fixed effect that the agent's pods do not tolerate."""
    of_pod = node_eligibility.daemon_tolerations(pod)
    return [
        taint
        for one in taints
        for taint in ([one] if one.effect else [Taint(one.key, effect) for effect in _ANY_EFFECT])
        if node_eligibility.untolerated(of_pod, (taint,))
    ]


def _required_agents_tolerate(taints: tuple[Taint, ...]) -> Check[Body]:
    @of_daemonsets
    def check(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
        """DS323: nodes wait for an agent whose pods do not start before."""
        if not daemonsets.is_required_for_work(body):
            return
        for taint in untolerated(pod, taints):
            words = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
            fix = Fix(
                f"tolerate {taint.key}",
                (Mend(_TOLERATIONS, [*items(pod.get("tolerations")), words]),),
            )
            message = (
                f"nodes wait for this agent, and its pods do not tolerate their taint "
                f"{taint.text}: neither would start"
            )
            yield Violation(ANNOTATION, message, fix)

    return check


required_agents_tolerate = _required_agents_tolerate((startup_taints.OWN,))


def of_settings(settings: Mapping[str, Any]) -> Check[Body]:
    """DS323 with `taints`: those of the settings of the service, KEY or KEY:EFFECT."""
    taints = tuple(startup_taints.parse(str(one)) for one in items(settings.get("taints")))
    return _required_agents_tolerate(taints or (startup_taints.OWN,))
