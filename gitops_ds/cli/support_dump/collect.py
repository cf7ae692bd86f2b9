"""`support-dump`: the data for a bug report, in one archive that can be published.

It is read-only. Parts that cannot be read are listed in the archive. No Secret is read; parts that
may contain secrets pass through `redaction`.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import re
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gitops_ds import __version__
from gitops_ds.cli.support_dump.archive import Dump, DumpLimits, Parts
from gitops_ds.core import errors
from gitops_ds.core.cluster import BRIEF, ClusterReader, Selection
from gitops_ds.core.objects import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DAEMONSET,
    EVENT,
    LEASE,
    NODE,
    POD,
    Body,
    Resource,
)
from gitops_ds.core.redaction import texts
from gitops_ds.deploy import state_store
from gitops_ds.kube.apimachinery import pod_contents, pods
from gitops_ds.source.git import hardening
from gitops_ds.source.renderers import expand
from gitops_ds.yaml import parser

_SERVICE: Final = "app.kubernetes.io/name=gitops-ds"  # the label of its pods in deploy/
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_TAIL: Final = 5_000  # lines of a log
_PODS: Final = 10  # of the service, whose logs and metrics are read


# Reads at most that many bytes of the API server's response at a path; raises ClusterError.
Raw = Callable[[str, Mapping[str, str], int], Awaitable[str]]


async def local(settings: str | None) -> Dump:
    """The local parts: versions, and the settings file."""
    dump = Dump()
    await dump.read("versions", _versions())
    if settings is not None:
        await dump.read("settings", _settings_file(settings))
    return dump


async def cluster(
    dump: Dump, cluster: ClusterReader, space: str, raw: tuple[Raw, DumpLimits] | None
) -> None:
    """Adds the parts of the cluster. `space` is the namespace of the state; `raw` reads logs and
    metrics, within the limits.
    """
    await dump.read("version of Kubernetes", _kubernetes(cluster))
    await dump.read("DaemonSets", _listed(cluster, DAEMONSET, "daemonsets"))
    await dump.read(
        "ControllerRevisions", _listed(cluster, CONTROLLER_REVISION, "controllerrevisions")
    )
    await dump.read("pods", _pods(cluster))
    await dump.read("nodes", _nodes(cluster))
    await dump.read("events", _events(cluster, space))
    await dump.read("leases", _listed(cluster, LEASE, "leases", Selection(namespace=space)))
    await dump.read("ConfigMaps and settings", _config_maps(cluster, space))
    await _states(dump, cluster, space)
    if raw is not None:
        await _running(dump, cluster, space, raw)


async def _versions() -> Parts:
    git, kustomize = await asyncio.to_thread(hardening.git_version), expand.program()
    by_library = {name: _version_of(name) for name in _libraries()}
    versions = {
        "gitops-ds": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git": ".".join(map(str, git)) if git else None,
        "kustomize": " ".join([Path(kustomize[0]).name, *kustomize[1:]]) if kustomize else None,
        "libraries": by_library,
    }
    return {"versions.json": versions}


def _libraries() -> list[str]:
    """The dependencies of the installed program, including those of its extras, by its metadata."""
    requirements = importlib.metadata.requires("gitops-ds") or ()
    return sorted(
        {
            re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            for requirement in requirements
            if "extra == 'dev'" not in requirement
        }
    )


def _version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


async def _settings_file(file: str) -> Parts:
    return {"settings.json": _settings(file, await asyncio.to_thread(Path(file).read_bytes))}


def _settings(file: str, data: bytes) -> Any:
    """The settings as values; invalid YAML is omitted, because its secrets can't be recognized.
    Raises SettingsError.
    """
    parsed = parser.read(file, data)
    if problems := [finding for finding in parsed.findings if finding.refused]:
        raise errors.SettingsError(f"{problems[0].place}: {problems[0].message}")
    content = parsed.documents[0].value if parsed.documents else None
    receivers = content.get("notify") if isinstance(content, dict) else None
    if isinstance(content, dict) and isinstance(receivers, list):
        hidden = [
            {**receiver, "url": texts.origin(receiver["url"])}
            if isinstance(receiver, dict) and isinstance(receiver.get("url"), str)
            else receiver
            for receiver in receivers
        ]
        return {**content, "notify": hidden}
    return content


async def _kubernetes(cluster: ClusterReader) -> Parts:
    return {"kubernetes.json": {"version": await cluster.version()}}


async def _listed(
    cluster: ClusterReader, resource: Resource, name: str, which: Selection | None = None
) -> Parts:
    listing = await cluster.list(resource, which or Selection())
    return {f"{name}.json": [_slim(body, resource) for body in listing.items]}


def _slim(body: Body, resource: Resource) -> dict[str, Any]:
    """The object without managedFields and without kubectl's annotation."""
    metadata = {
        key: value for key, value in (body.get("metadata") or {}).items() if key != "managedFields"
    }
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {
            key: value for key, value in annotations.items() if key != _LAST_APPLIED
        }
    return {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


async def _pods(cluster: ClusterReader) -> Parts:
    """The pods of DaemonSets with the fields that the controller decides from; the rest of their
    specification is in their revision.
    """
    kept = {
        "metadata": (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "labels",
            "annotations",
            "ownerReferences",
        ),
        "spec": ("nodeName", "affinity", "schedulingGates", pod_contents.PACKED),
    }
    items = []
    for body in (await cluster.list(POD, BRIEF)).items:
        if pods.is_of_daemonset(pods.controller_of(body["metadata"])):
            spec = body.get("spec") or {}
            content = {pod_contents.PACKED: pod_contents.packed(spec)}
            picked = _picked({**body, "spec": {**spec, **content}}, kept)
            items.append({**picked, "status": body.get("status") or {}})
    return {"pods.json": items}


async def _nodes(cluster: ClusterReader) -> Parts:
    """The labels, taints and conditions of nodes, without addresses and annotations."""
    kept = {
        "metadata": ("name", "uid", "creationTimestamp", "deletionTimestamp", "labels"),
        "spec": ("taints", "unschedulable"),
        "status": ("conditions", "nodeInfo"),
    }
    listing = await cluster.list(NODE, BRIEF)
    return {"nodes.json": [_picked(body, kept) for body in listing.items]}


def _picked(body: Body, kept: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """These fields of each part of an object."""
    return {
        part: {key: value for key, value in (body.get(part) or {}).items() if key in keys}
        for part, keys in kept.items()
    }


async def _events(cluster: ClusterReader, space: str) -> Parts:
    """The events of DaemonSets, pods and nodes, and of all objects in the namespace of the service;
    newest first, because the limit drops the last ones.
    """
    kinds = (DAEMONSET.kind, POD.kind, NODE.kind)
    events = [
        _slim(body, EVENT)
        for body in (await cluster.list(EVENT)).items
        if (about := body.get("involvedObject") or {}).get("kind") in kinds
        or about.get("namespace") == space
    ]
    return {"events.json": sorted(events, key=_moment, reverse=True)}


def _moment(event: Body) -> str:
    metadata = event.get("metadata") or {}
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or metadata.get("creationTimestamp")
        or ""
    )


async def _config_maps(cluster: ClusterReader, space: str) -> Parts:
    """Our ConfigMaps, whose state is decoded separately, and those with settings."""
    items, parts = [], {}
    for body in (await cluster.list(CONFIG_MAP, Selection(namespace=space))).items:
        slim = _slim(body, CONFIG_MAP)
        name, data = slim["metadata"]["name"], slim.get("data") or {}
        if (slim["metadata"].get("labels") or {}).get(
            "app.kubernetes.io/managed-by"
        ) == "gitops-ds":
            sizes = {
                key: f"{len(value)} characters of base64"
                for key, value in (slim.pop("binaryData", None) or {}).items()
            }
            items.append({**slim, "binaryData": sizes} if sizes else slim)
        elif "settings.yaml" in data:
            try:
                parts[f"settings-{name}.json"] = _settings(
                    f"ConfigMap {space}/{name}", str(data["settings.yaml"]).encode()
                )
            except errors.SettingsError as error:
                items.append({"metadata": {"name": name}, "unreadable": str(error)})
    return {"configmaps.json": items, **parts}


async def _states(dump: Dump, cluster: ClusterReader, space: str) -> None:
    try:
        owners = await state_store.owners(cluster, space)
    except errors.ClusterError as error:
        dump.missing.append(f"states: {error}")
        return

    async def one(owner: str) -> Parts:
        return {
            f"state/{owner}.json": state_store.show(await state_store.load(cluster, space, owner))
        }

    for owner in owners:
        await dump.read(f"state of {owner}", one(owner))


async def _running(
    dump: Dump, cluster: ClusterReader, space: str, reader: tuple[Raw, DumpLimits]
) -> None:
    raw, limits = reader
    """Logs and metrics of the service's own pods, including the logs before a restart."""
    try:
        listing = await cluster.list(POD, Selection(space, _SERVICE))
    except errors.ClusterError as error:
        dump.missing.append(f"pods of the service: {error}")
        return
    if not listing.items:
        dump.missing.append(
            f"logs and metrics: no pod with the label {_SERVICE} in namespace {space}"
        )
    wishes: dict[str, tuple[str, dict[str, str]]] = {}
    for body in islice(listing.items, _PODS):
        name = str(body["metadata"]["name"])
        path = f"/api/v1/namespaces/{space}/pods/{name}"
        for container in (body.get("spec") or {}).get("containers") or ():
            container_name = str(container["name"])
            query = {
                "container": container_name,
                "tailLines": str(_TAIL),
                "timestamps": "true",
                "limitBytes": str(limits.log),
            }
            wishes[f"logs/{name}.{container_name}.log"] = f"{path}/log", query
            if _restarted(body, container_name):
                wishes[f"logs/{name}.{container_name}.previous.log"] = (
                    f"{path}/log",
                    {**query, "previous": "true"},
                )
        wishes[f"metrics/{name}.txt"] = f"{path}:{_port(body)}/proxy/metrics", {}
    for file, (path, query) in wishes.items():
        await dump.read(file, _text(file, raw(path, query, limits.log), limits.log))


def _restarted(body: Body, container: str) -> bool:
    statuses = (body.get("status") or {}).get("containerStatuses") or ()
    return any(
        status.get("name") == container and status.get("restartCount") for status in statuses
    )


def _port(body: Body) -> int:
    ports = [
        port
        for container in (body.get("spec") or {}).get("containers") or ()
        for port in container.get("ports") or ()
    ]
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "http"), 8080)


async def _text(name: str, reading: Awaitable[str], most: int) -> Parts:
    """A text of complete lines, because a part of a secret would not be recognized."""
    text = await reading
    return {name: text if len(text.encode()) < most else text[: text.rfind("\n") + 1]}
