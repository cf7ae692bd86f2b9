"""The deployer's memory: one ConfigMap for each repository and cluster, written under its version.

Compressed JSON by schemas/state.schema.json; what passes half a MiB goes on in further ConfigMaps, written before the first one
names them, so that a crash in between leaves the old state whole.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from gitops_ds import errors
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.deployment import HeldCommit, State
from gitops_ds.model.objects import CONFIG_MAP, NAMESPACE, Body, CommitId, Digest, Key

CHUNK_BYTES = 512 * 1024
_KEY = "state.json.gz"
_PARTS = f"{names.DOMAIN}/parts"


def identity(hint: str, repository: str, path: str, cluster: str) -> str:
    """The id under which objects are owned: the repository's own name with the cluster's, else a hash of where all comes from."""
    if hint:
        return f"{hint}.{cluster}" if cluster else hint
    return hashlib.sha256("\0".join((repository, path, cluster)).encode()).hexdigest()[:12]


async def load(cluster: Cluster, namespace: str, id: str) -> State:
    """The state, or an empty one where there is none. Raises ClusterError, also for a state that can't be read."""
    try:
        first = await cluster.get(CONFIG_MAP, namespace, _name(id, 0))
    except errors.NotFound:
        return State()
    parts = int((first["metadata"].get("annotations") or {}).get(_PARTS, "1"))
    rest = [await cluster.get(CONFIG_MAP, namespace, _name(id, part)) for part in range(1, parts)]
    try:
        data = b"".join(base64.b64decode(body["binaryData"][_KEY]) for body in (first, *rest))
        return _parse(orjson.loads(gzip.decompress(data)), str(first["metadata"]["resourceVersion"]))
    except (KeyError, ValueError, OSError, EOFError) as error:
        raise errors.ClusterError(
            f"ConfigMap {namespace}/{_name(id, 0)} holds no state of ours ({error}): delete it to begin anew; no agent is touched"
        ) from error


async def save(cluster: Cluster, namespace: str, id: str, state: State) -> State:
    """Writes the state over the version that it was read at, and returns it at its new one; Conflict when somebody was faster."""
    data = gzip.compress(orjson.dumps(_show(state), option=orjson.OPT_SORT_KEYS), mtime=0)
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    for part in range(len(chunks) - 1, 0, -1):
        await cluster.apply(CONFIG_MAP, _config_map(namespace, id, part, chunks), manager=names.FIELD_MANAGER, force=True)
    body = _config_map(namespace, id, 0, chunks)
    if state.version:
        written = await cluster.replace(CONFIG_MAP, {**body, "metadata": {**body["metadata"], "resourceVersion": state.version}})
    else:
        written = await _create(cluster, namespace, body)
    return replace(state, version=str(written["metadata"]["resourceVersion"]))


async def _create(cluster: Cluster, namespace: str, body: Body) -> Body:
    try:
        return await cluster.create(CONFIG_MAP, body)
    except errors.NotFound:
        await cluster.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        return await cluster.create(CONFIG_MAP, body)


def _name(id: str, part: int) -> str:
    return f"gitops-ds-{id}" if part == 0 else f"gitops-ds-{id}-{part + 1}"


def _config_map(namespace: str, id: str, part: int, chunks: list[bytes]) -> dict[str, Any]:
    metadata = {
        "namespace": namespace,
        "name": _name(id, part),
        "labels": {"app.kubernetes.io/managed-by": "gitops-ds"},
        "annotations": {_PARTS: str(len(chunks))},
    }
    data = {_KEY: base64.b64encode(chunks[part]).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data}


def _show(state: State) -> dict[str, Any]:
    return {
        "version": "v1",
        "repository": state.repository,
        "cluster": state.cluster,
        "lastGoodCommit": state.last_good,
        "lastAttemptedCommit": state.last_attempted,
        "heldCommits": [{"commit": held.commit, "reason": held.reason, "at": held.at} for held in state.held],
        "inventory": [list(_words(key)) for key in sorted(state.inventory)],
        "digests": [[*_words(key), digest] for key, digest in sorted(state.digests.items())],
        "revisions": {
            f"{key.namespace}/{key.name}": {str(number): commit for number, commit in sorted(known.items())}
            for key, known in sorted(state.revisions.items())
        },
    }


def _words(key: Key) -> tuple[str, str, str, str]:
    return key.group, key.kind, key.namespace, key.name


def _parse(told: Mapping[str, Any], version: str) -> State:
    if told["version"] != "v1":
        raise ValueError(f"version {told['version']!r} is not known here")
    revisions = {}
    for name, known in told["revisions"].items():
        namespace, _, short = name.partition("/")
        revisions[Key("apps", "DaemonSet", namespace, short)] = {int(n): CommitId(commit) for n, commit in known.items()}
    return State(
        repository=told["repository"],
        cluster=told["cluster"],
        last_good=told["lastGoodCommit"],
        last_attempted=told["lastAttemptedCommit"],
        held=tuple(HeldCommit(**held) for held in told["heldCommits"]),
        inventory=frozenset(Key(*words) for words in told["inventory"]),
        digests={Key(*words): Digest(digest) for *words, digest in told["digests"]},
        revisions=revisions,
        version=version,
    )
