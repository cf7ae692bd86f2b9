"""The simulated cluster as an HTTP API server, for measured processes.

Without TLS, credentials and permissions; `connected` writes the kubeconfig.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from gitops_ds.core import errors
from gitops_ds.core.cluster import PatchType, Propagation, Selection
from gitops_ds.core.objects import Body, Resource
from gitops_ds.testing.simulator import Client
from gitops_ds.testing.simulator.client import VERSION

APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Target:
    """The object or resource of a path."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


@dataclass
class SimulatedApi:
    """The endpoints; the pages of a list have the version of the first page."""

    cluster: Client
    writes: int = 0
    _rest: dict[str, tuple[Body, ...]] = field(default_factory=dict)
    _tokens: itertools.count[int] = field(default_factory=itertools.count)
    _watches: dict[int, web.Request] = field(default_factory=dict)

    def break_watches(self) -> None:
        """Ends the connections of all watches."""
        for request in self._watches.values():
            if request.transport:
                request.transport.abort()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Handles any request."""
        if request.path == "/version":
            return web.json_response({"gitVersion": VERSION})
        if request.path in ("/api", "/apis"):
            return web.json_response(await self._discovery(core=request.path == "/api"))
        try:
            target = await self._target(request.path)
            if request.method == "GET" and "watch" in request.query:
                return await self._watch(request, target)
            return _json(await self._body(request, target))
        except errors.ClusterError as error:
            return _json(_status(error), error.status or 500)

    async def _body(self, request: web.Request, target: Target) -> Any:
        resource, where = target.resource, (target.namespace, target.name)
        if request.method == "GET":
            return await (
                self.cluster.get(resource, *where)
                if target.name
                else self._page(request.query, target)
            )
        self.writes += "dryRun" not in request.query
        body = orjson.loads(await request.read())
        match request.method:
            case "POST":
                if target.namespace:
                    body["metadata"]["namespace"] = target.namespace
                return await self.cluster.create(resource, body)
            case "PUT":
                return await self.cluster.replace(resource, body)
            case "DELETE":
                propagation = Propagation(body.get("propagationPolicy", "Background"))
                uid = (body.get("preconditions") or {}).get("uid", "")
                return await self.cluster.delete(resource, *where, uid=uid, propagation=propagation)
            case _ if request.content_type == APPLY:
                return (await self._apply(request.query, resource, body)).body
            case _:
                return await self.cluster.patch(
                    resource,
                    *where,
                    body,
                    type=PatchType(request.content_type),
                    subresource=target.subresource,
                )

    async def _apply(self, query: Mapping[str, str], resource: Resource, body: Body) -> Any:
        send = self.cluster.dry_run if "dryRun" in query else self.cluster.apply
        return await send(
            resource, body, manager=query["fieldManager"], force=query["force"] == "true"
        )

    async def _page(self, query: Mapping[str, str], target: Target) -> dict[str, Any]:
        token, limit = query.get("continue", ""), int(query.get("limit", "0"))
        if token:
            version, items = token.partition("-")[0], self._rest.pop(token)
        else:
            listing = await self.cluster.list(target.resource, _selection(query, target))
            version, items = listing.version, tuple(listing.items)
        page, rest = (items[:limit], items[limit:]) if limit else (items, ())
        metadata = {"resourceVersion": version}
        if rest:
            metadata["continue"] = f"{version}-{next(self._tokens)}"
            self._rest[metadata["continue"]] = rest
        kind = target.resource
        head = {"apiVersion": kind.api_version, "kind": f"{kind.kind}List", "metadata": metadata}
        return {**head, "items": list(page)}

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "application/json"})
        await reply.prepare(request)
        selection = _selection(request.query, target)
        events = self.cluster.watch(target.resource, request.query["resourceVersion"], selection)
        self._watches[id(request)] = request
        with contextlib.suppress(ConnectionError):
            try:
                async for event in events:
                    line = {"type": event.type, "object": event.object}
                    await reply.write(orjson.dumps(line) + b"\n")
            except errors.ClusterError as error:
                line = {"type": "ERROR", "object": _status(error)}
                await reply.write(orjson.dumps(line) + b"\n")
        self._watches.pop(id(request), None)
        return reply

    async def _discovery(self, *, core: bool) -> dict[str, Any]:
        groups: dict[str, dict[str, list[Any]]] = {}
        for resource in (await self.cluster.resources()).values():
            if core is (resource.group == ""):
                versions = groups.setdefault(resource.group, {})
                versions.setdefault(resource.version, []).append(
                    {
                        "resource": resource.plural,
                        "responseKind": {"kind": resource.kind},
                        "scope": "Namespaced" if resource.namespaced else "Cluster",
                    }
                )
        items = [
            {
                "metadata": {"name": group},
                "versions": [{"version": v, "resources": r} for v, r in versions.items()],
            }
            for group, versions in groups.items()
        ]
        return {"kind": "APIGroupDiscoveryList", "items": items}

    async def _target(self, path: str) -> Target:
        steps = [urllib.parse.unquote(step) for step in path.strip("/").split("/")]
        group = "" if steps[0] == "api" else steps[1]
        rest = steps[2:] if steps[0] == "api" else steps[3:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        served = (await self.cluster.resources()).values()
        resource = next((r for r in served if (r.group, r.plural) == (group, rest[0])), None)
        if resource is None:
            raise errors.NotFound(f"{path} is not served", 404, "NotFound")
        name, subresource = [*rest[1:3], "", ""][:2]
        return Target(resource, namespace, name, subresource)


@contextlib.asynccontextmanager
async def connected(cluster: Client, kubeconfig: Path) -> AsyncIterator[SimulatedApi]:
    """Serves the cluster in the context, at the address in the written kubeconfig."""
    api = SimulatedApi(cluster)
    application = web.Application(client_max_size=2**26)
    application.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    _, port = runner.addresses[0][:2]
    context = {"name": "simulated", "context": {"cluster": "simulated", "user": "bench"}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "simulated", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [context],
        "current-context": "simulated",
    }
    kubeconfig.write_text(json.dumps(document))
    try:
        yield api
    finally:
        await runner.cleanup()


def _selection(query: Mapping[str, str], target: Target) -> Selection:
    fields = query.get("fieldSelector", "")
    if target.name:
        fields = f"metadata.name={target.name}"
    return Selection(target.namespace, query.get("labelSelector", ""), fields)


def _status(error: errors.ClusterError) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": error.server_message,
        "reason": error.reason,
        "code": error.status or 500,
        "details": {"causes": list(error.causes)},
    }


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
