"""An agent that nodes wait for must tolerate their startup taints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gitops_ds.checks.engine.rule import POD, Check, Spec, Violation, items, of_daemonsets, rule
from gitops_ds.core import names, startup_taints
from gitops_ds.core.finding import Fix, Mend, refused
from gitops_ds.core.live import Taint
from gitops_ds.core.objects import Body, Path
from gitops_ds.kube.apimachinery import daemonsets, node_eligibility

_TOLERATIONS: Final[Path] = (*POD, "tolerations")
ANNOTATION: Final[Path] = ("metadata", "annotations", names.REQUIRED_FOR_WORK)
_ANY_EFFECT: Final = (node_eligibility.NO_SCHEDULE, node_eligibility.NO_EXECUTE)


def untolerated(pod: Spec, taints: Iterable[Taint]) -> list[Taint]:
    """The taints with a fixed effect that the agent's pods do not tolerate."""
    of_pod = node_eligibility.daemon_tolerations(pod)
    return [
        taint
        for listed in taints
        for taint in (
            [listed] if listed.effect else [Taint(listed.key, effect) for effect in _ANY_EFFECT]
        )
        if node_eligibility.untolerated(of_pod, (taint,))
    ]


def of_settings(settings: Mapping[str, Any]) -> Check[Body]:
    """The check with `taints`: those of the settings of the service, KEY or KEY:EFFECT."""
    listed = tuple(startup_taints.parse(str(text)) for text in items(settings.get("taints")))
    taints = listed or (startup_taints.OWN,)

    @of_daemonsets
    def check(body: Body, spec: Spec, pod: Spec) -> Iterator[Violation]:
        """Nodes wait for an agent whose pods do not start before."""
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


required_agents_tolerate = rule(
    refused("DS323", "required agent does not tolerate the startup taint"),
    from_settings=of_settings,
)(of_settings({}))
