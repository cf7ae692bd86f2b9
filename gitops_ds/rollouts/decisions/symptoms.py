"""The symptoms of a pod that others can cause, and what makes each of them evidence against its
template.

Other pods take the place of a pod, fill a node, or change what an affinity refers to; a registry
fails; a ConfigMap is deleted. Such a symptom is evidence against a template only if the template
demands more than the proven one, of exactly that which the symptom is about: the pods of the proven
template ran there. Quotas, limit ranges and admission webhooks refuse pods before any is deleted
(`HoldKind.REFUSED`); evicted, preempted and rejected pods have ended or are gone, and the DaemonSet
controller replaces them. None of these is ever evidence.

Everything else, as a crash or a failed probe, is the template's, by the rules of failures.

Events are not used as evidence: more people can write them than the status of pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from gitops_ds.core.daemonset import Pod
from gitops_ds.kube.apimachinery import pod_demands
from gitops_ds.kube.apimachinery.pod_demands import Demand, Growth


class Symptom(msgspec.Struct, frozen=True):
    """A symptom by a pattern of its message, the demands that can cause it, and what causes it if
    none of them grew.
    """

    name: str
    pattern: str
    demands: frozenset[Demand]
    cause: str

    def matches(self, message: str) -> bool:
        """Whether the message has the pattern."""
        return re.search(self.pattern, message) is not None


_ROOM = "the other pods of the node"
_REGISTRY = "the registry"

# Messages of the plugins of kube-scheduler: pkg/scheduler/framework/plugins.
_PORTS = Symptom(
    "host ports",
    "free ports for the requested pod ports",
    frozenset({Demand.HOST_PORTS, Demand.PRIORITY}),
    _ROOM,
)
_CAPACITY = Symptom(
    "requests",
    "Insufficient |Too many pods",
    frozenset({Demand.REQUESTS, Demand.SANDBOX, Demand.PRIORITY}),
    _ROOM,
)
_PEERS = Symptom(
    "pod affinity and topology spread",
    "pod affinity|anti-affinity|topology spread",
    frozenset({Demand.PEERS, Demand.PRIORITY}),
    "pods that its affinity or spread refers to",
)
_VOLUMES = Symptom(
    "volumes",
    "(?i)volume|pvc|available disk|free storage",
    frozenset({Demand.VOLUMES}),
    "its volumes",
)
_CLAIMS = Symptom(
    "resource claims", "(?i)claim|device", frozenset({Demand.CLAIMS}), "its resource claims"
)
_TAINTS = Symptom(
    "taints", "taint|were unschedulable", frozenset({Demand.TOLERATIONS}), "the taints of the node"
)
# The message of a pod that is pinned to a node has it for all other nodes.
_NODES = Symptom(
    "node selector and affinity",
    "node affinity|NodeAffinity|requested node name",
    frozenset({Demand.NODES}),
    "the labels of the node",
)
_SPECIFIC = (_PORTS, _CAPACITY, _PEERS, _VOLUMES, _CLAIMS, _TAINTS)
_UNKNOWN = Symptom(
    "any other reason of a scheduler, or none",
    "",
    frozenset({Demand.SCHEDULER}).union(*(symptom.demands for symptom in (*_SPECIFIC, _NODES))),
    "the scheduler",
)
# Messages of containerd and CRI-O; the kubelet repeats that of the last attempt in its back-off:
# pkg/kubelet/images/image_manager.go.
_ABSENT = Symptom(
    "the image does not exist",
    r"[Nn]ot ?[Ff]ound|manifest unknown|name unknown|no match for platform",
    frozenset({Demand.IMAGE}),
    _REGISTRY,
)
_DENIED = Symptom(
    "the pull is denied",
    r"(?i)unauthorized|denied|forbidden|authentication required|authorization failed",
    frozenset({Demand.REPOSITORY, Demand.CREDENTIALS}),
    _REGISTRY,
)
_DOWN = Symptom(
    "the registry fails",
    r"(?i)timeout|timed out|deadline exceeded|connection re|no such host|dial tcp|handshake|\bEOF\b"
    r"|server misbehaving|no route to host|unreachable|unavailable|x509|\b5\d\d [a-z]"
    r"|toomanyrequests|too many requests|name resolution",
    frozenset({Demand.REGISTRY}),
    _REGISTRY,
)
_PULL = Symptom("any other failure of a pull", "", frozenset({Demand.IMAGE}), _REGISTRY)
_REFERENCES = Symptom(
    "a ConfigMap or Secret of the environment is missing",
    r"(?i)(configmap|secret).*not found|find key",
    frozenset({Demand.REFERENCES}),
    "a missing ConfigMap or Secret",
)
_SANDBOX = Symptom(
    "volumes are not mounted, or the network is not ready",
    "",
    frozenset({Demand.VOLUMES, Demand.SANDBOX}),
    "volumes or the network of the node",
)

SCHEDULING = (*_SPECIFIC, _NODES, _UNKNOWN)
PULLING = (_ABSENT, _DENIED, _DOWN, _PULL)
STARTING = (_REFERENCES, _SANDBOX)

_PULL_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})


def cause(pod: Pod, growth: Growth, denied: frozenset[str] = frozenset()) -> str:
    """What causes the failure of a pod other than its template, in words; empty if the failure is
    evidence against the template. `denied` are the registries that deny images of the proven
    template too.
    """
    found = tuple(_of(pod))
    if not found or any(_is_evidence(symptom, pod, growth, denied) for symptom in found):
        return ""
    return found[0].cause


def denied(pod: Pod) -> frozenset[str]:
    """The registries that deny an image of the pod."""
    if pod.trouble not in _PULL_REASONS or _DENIED not in _of(pod):
        return frozenset()
    return frozenset(map(pod_demands.registry, _names(pod.message)))


def _of(pod: Pod) -> Iterator[Symptom]:
    """The symptoms of a pod that fails, none if others can't cause its failure."""
    if pod.ended or pod.waits:
        return
    if not pod.bound:
        # Preemption is described after the reasons: "preemption: 0/4 nodes are available: …".
        reasons = pod.message.partition("preemption:")[0]
        known = [symptom for symptom in _SPECIFIC if symptom.matches(reasons)]
        yield from known or [next(_first((_NODES, _UNKNOWN), reasons))]
    elif pod.trouble in _PULL_REASONS:
        is_down = pod.trouble == "RegistryUnavailable"
        yield _DOWN if is_down else next(_first(PULLING, _without_names(pod.message)))
    elif pod.trouble == "CreateContainerConfigError":
        yield from _first((_REFERENCES,), pod.message)
    elif pod.unprepared and not pod.trouble:
        yield _SANDBOX


def _first(symptoms: Iterable[Symptom], message: str) -> Iterator[Symptom]:
    return (symptom for symptom in symptoms if symptom.matches(message))


def _without_names(message: str) -> str:
    return re.sub(r'"[^"]*"', "", message)


def _is_evidence(symptom: Symptom, pod: Pod, growth: Growth, denied: frozenset[str]) -> bool:
    larger = symptom.demands & growth.demands
    if Demand.REQUESTS in larger:
        about = {
            resource.rstrip(".") for resource in re.findall(r"Insufficient ([\w./-]+)", pod.message)
        }
        if about and not about & growth.requests:
            larger -= {Demand.REQUESTS}
    if symptom not in PULLING or not larger:
        return bool(larger)
    named = _names(pod.message)
    if symptom is _DENIED and not denied.isdisjoint(map(pod_demands.registry, named)):
        return False
    return named.isdisjoint(growth.kept) or not named.isdisjoint(growth.images)


def _names(message: str) -> frozenset[str]:
    """The images of the message of a pull: `Back-off pulling image "NAME": …`."""
    return frozenset(re.findall(r'image "([^"]+)"', message))
