"""What a pod runs, compared with a template: the labels of a pod name its template, but its writer
chooses the labels.

Admission plugins and webhooks change pods: they add containers and volumes, set resources, replace
a tag by a digest, or a registry by a mirror. So a pod may have further containers, and an image may
have a digest in addition; a mirror must be named. Environment, volumes and resources are not
compared.
https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from gitops_ds.core.daemonset import ContainerContent, PodContent
from gitops_ds.core.objects import Body, kept_text
from gitops_ds.kube.apimachinery import defaults

# A field of the spec of a received pod that replaces FIELDS (`client.received_bodies`).
PACKED = "gitops-ds.io/content"
# The fields of a pod's spec that are read here; `initContainers` and `affinity` are read by others
# as well.
FIELDS = (
    "containers",
    "hostNetwork",
    "nodeSelector",
    "tolerations",
    "topologySpreadConstraints",
    "schedulerName",
    "runtimeClassName",
    "resourceClaims",
    "volumes",
)
_RUN = ("command", "args", "workingDir", "restartPolicy")
_PROBES = ("readinessProbe", "startupProbe")
_READ = ("name", "image", *_RUN, *_PROBES)
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_BY_NODE = "requiredDuringSchedulingIgnoredDuringExecution"
# The DaemonSet controller and the admission plugin DefaultTolerationSeconds add tolerations of
# these taints.
_OF_KUBERNETES = "node.kubernetes.io/"


def of_template(template: Body) -> PodContent:
    """The content of the pods of a template, with or without the defaults of the API server."""
    spec = defaults.defaulted_template(template).get("spec") or {}
    return _content(tuple(_containers(spec)), _room(spec))


def of_pod(spec: Body) -> PodContent:
    """The content of a pod of a DaemonSet; `spec` may be packed."""
    containers, room = packed(spec)
    return _content(tuple(tuple(container) for container in containers), room)


def packed(spec: Body) -> tuple[Sequence[Sequence[str]], str]:
    """The content of a pod of a DaemonSet as JSON: little text for a long list of pods."""
    if PACKED in spec:
        already: tuple[Sequence[Sequence[str]], str] = spec[PACKED]
        return already
    return list(_containers(spec)), "" if spec.get("nodeName") else _room(spec)


def difference(
    template: PodContent, pod: PodContent, mirrors: Sequence[str] = (), *, exact: bool = False
) -> str:
    """How a pod differs from a template; empty for a pod of it. `mirrors` are prefixes of images
    that admission puts in the place of a registry. `exact`: no image may have another digest.
    """
    found = {container.name: container for container in pod.containers}
    for wanted in template.containers:
        one = found.get(wanted.name)
        if one is None:
            return f"its pod has no container {wanted.name}"
        if one.image != wanted.image and (exact or not is_image(one.image, wanted.image, mirrors)):
            return f"container {wanted.name} has the image {one.image}, not {wanted.image}"
        if one.rest != wanted.rest:
            return f"container {wanted.name} has another command, or other arguments or probes"
    return ""


def is_image(image: str, wanted: str, mirrors: Iterable[str] = ()) -> bool:
    """Whether an image is the wanted one, by a digest in place of or after its tag, or from a
    mirror.
    """
    registry, slash, path = wanted.partition("/")
    is_host = slash and ("." in registry or ":" in registry or registry == "localhost")
    paths = (wanted, path) if is_host else (wanted,)
    texts = (wanted, *(prefix + path for prefix in mirrors for path in paths))
    if image in texts:
        return True
    plain, at, _ = image.partition("@")
    if not at or "@" in wanted:
        return False
    return plain in texts or plain in map(_untagged, texts)


def _untagged(image: str) -> str:
    head, slash, last = image.rpartition("/")
    return head + slash + last.partition(":")[0]


@lru_cache(8192)
def _content(containers: tuple[tuple[str, str, str], ...], room: str) -> PodContent:
    return PodContent(tuple(ContainerContent(*container) for container in containers), room)


def _containers(spec: Body) -> Iterator[tuple[str, str, str]]:
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            text = orjson.dumps({name: container.get(name) for name in _READ})
            yield _container(field, kept_text(text))


@lru_cache(8192)
def _container(field: str, text: bytes) -> tuple[str, str, str]:
    """The content of a container, as JSON: those of the pods of one template are equal."""
    one = orjson.loads(text)
    rest = {name: _plain(one[name]) for name in _RUN}
    for name in _PROBES:
        probe = one[name] or {}
        rest[name] = {kind: _plain(probe.get(kind)) for kind in _HANDLERS if kind in probe}
    digest = _digest([field, {name: value for name, value in rest.items() if value}])
    return str(one["name"] or ""), str(one["image"] or ""), digest


def _room(spec: Body) -> str:
    """Of the affinity not the required nodes: the DaemonSet controller replaces them."""
    affinity = dict(spec.get("affinity") or {})
    by_node = affinity.pop("nodeAffinity", None) or {}
    tolerations = [
        toleration
        for toleration in spec.get("tolerations") or ()
        if not str(toleration.get("key") or "").startswith(_OF_KUBERNETES)
    ]
    everything = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    claims = [
        {name: volume.get(name) for name in ("persistentVolumeClaim", "ephemeral")}
        for volume in spec.get("volumes") or ()
    ]
    return _digest(
        _plain(
            {
                "affinity": affinity,
                "preferred": {name: one for name, one in by_node.items() if name != _BY_NODE},
                "tolerations": tolerations,
                "containers": [
                    [_plain(container.get("resources") or {}), _host_ports(container, spec)]
                    for container in everything
                ],
                "claims": [claim for claim in claims if any(claim.values())],
                **{
                    name: spec.get(name)
                    for name in FIELDS
                    if name not in ("containers", "hostNetwork", "tolerations", "volumes")
                },
            }
        )
    )


def _host_ports(container: Body, spec: Body) -> list[Any]:
    """In the network of the host every port is one of the host, by a default of pods only."""
    name = "containerPort" if spec.get("hostNetwork") else "hostPort"
    return [
        [port.get(name), port.get("protocol")]
        for port in container.get("ports") or ()
        if port.get(name)
    ]


def _plain(value: Any) -> Any:
    """The value without empty ones."""
    if isinstance(value, Mapping):
        plain = {key: _plain(one) for key, one in value.items()}
        return {key: one for key, one in plain.items() if one not in (None, "", [], {})}
    return [_plain(element) for element in value] if isinstance(value, list | tuple) else value


def _digest(value: Any) -> str:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=8).hexdigest()
