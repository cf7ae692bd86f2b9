"""The API server: each method is one request, with an immediate response.

Objects go through the same steps as in the real one: shape, admission, defaults, validation,
ownership of fields, storage. It has no background tasks; kubelets, scheduler and garbage collector
are separate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import NAMESPACE, POD, Body, Resource
from gitops_ds.kube.apimachinery import patches, timestamps
from gitops_ds.testing.simulator import (
    api_errors,
    field_sets,
    field_validation,
    managed_fields,
    registry_strategy,
    type_schema,
    validation,
)
from gitops_ds.testing.simulator.field_sets import Schema
from gitops_ds.testing.simulator.managed_fields import Manager, Write
from gitops_ds.testing.simulator.registry_strategy import DeleteOptions
from gitops_ds.testing.simulator.store import ObjectStore
from gitops_ds.testing.simulator.type_schema import Structures

_ALWAYS_THERE = ("default", "kube-node-lease", "kube-public", "kube-system")
_KEPT = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


# A mutating admission webhook: the object to store, of one that is new (True) or changed.
Mutate = Callable[[Resource, Body, bool], Body]


class Server:
    """The state of one simulated cluster. `now` returns seconds since 1970, `seed` determines the
    uids, `history` changes of a kind are kept.
    """

    def __init__(self, now: Callable[[], float], seed: int = 1, history: int = 10_000) -> None:
        self.now, self.store = now, ObjectStore(history)
        self.structures: Structures = type_schema.builtin().copy()
        self.schema = Schema(self.structures)
        self._seed, self._made = seed, 0
        self._custom: set[tuple[str, str]] = set()
        self.mutate: Mutate = lambda _resource, body, _is_new: body

    def begin(self) -> None:
        """Creates the namespaces of every cluster."""
        for name in _ALWAYS_THERE:
            self.create(NAMESPACE, {"metadata": {"name": name}}, "kube-apiserver")

    # --- reading

    def get(self, resource: Resource, namespace: str, name: str) -> Body:
        """The object; raises NotFound."""
        self.require(resource)
        body = self.store.get(resource, namespace if resource.namespaced else "", name)
        if body is None:
            raise api_errors.not_found(resource, name)
        return body

    def require(self, resource: Resource) -> None:
        """Raises NotFound unless the kind is served."""
        if self.structures.served.get((resource.group, resource.kind)) != resource:
            raise api_errors.not_served()

    # --- writing

    def create(self, resource: Resource, body: Body, manager: str) -> Body:
        """Stores a new object. Raises AlreadyExists, Invalid, NotFound or Forbidden (the
        namespace).
        """
        self.require(resource)
        made = field_validation.known_fields(self.structures, self.structures.of(resource), body)
        made = self._new(resource, self._named(resource, made))
        write = self._write(resource, manager, "Update")
        made["metadata"]["managedFields"] = managed_fields.after_update(
            self.schema, write, None, made
        )
        return self._insert(resource, made)

    def _named(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        metadata = dict(body.get("metadata") or {})
        if not metadata.get("name") and (prefix := metadata.get("generateName")):
            metadata["name"] = prefix + self._suffix()
        for field in (*_KEPT[:5], "resourceVersion", "managedFields"):
            metadata.pop(field, None)
        if not resource.namespaced:
            metadata.pop("namespace", None)
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **body,
            "metadata": metadata,
        }

    def _suffix(self) -> str:
        self._made += 1
        number, text = self._made * 2_654_435_761 % len(_LETTERS) ** 5, ""
        for _ in range(5):
            number, letter = divmod(number, len(_LETTERS))
            text += _LETTERS[letter]
        return text

    def _uid(self) -> str:
        self._made += 1
        return f"{self._seed & 0xFFFFFFFF:08x}-0000-4000-8000-{self._made:012x}"

    def _new(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        metadata = body["metadata"]
        name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
        self._admit(resource, namespace, name)
        if self.store.get(resource, namespace, name) is not None:
            raise api_errors.already_exists(resource, name)
        now = timestamps.text(self.now())
        body = dict(self.mutate(resource, body, True))
        made = registry_strategy.on_create(resource, body, self._has_status(resource), now)
        metadata = {**made["metadata"], "uid": self._uid(), "creationTimestamp": now}
        if registry_strategy.counts_changes(resource, self._is_custom(resource)):
            metadata["generation"] = 1
        made["metadata"] = metadata
        validation.check(resource, None, made)
        return made

    def _admit(self, resource: Resource, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        if not namespace:
            raise api_errors.not_allowed()
        stored_namespace = self.store.get(NAMESPACE, "", namespace)
        if stored_namespace is None:
            raise api_errors.not_found(NAMESPACE, namespace)
        if "deletionTimestamp" in stored_namespace["metadata"]:
            cause = api_errors.FieldError(
                "metadata.namespace",
                "NamespaceTerminating",
                f"namespace {namespace} is being terminated",
            )
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            raise api_errors.forbidden(resource, name, why, [cause])

    def _insert(self, resource: Resource, body: dict[str, Any]) -> Body:
        stored = self.store.put(resource, body)
        if resource == registry_strategy.CRD:
            for custom, structure in type_schema.custom_kinds(stored):
                self.structures.add(custom, structure)
                if not self._is_custom(custom):
                    self.store.begin(custom)
                self._custom.add((custom.group, custom.kind))
        return stored

    def replace(self, resource: Resource, body: Body, manager: str, subresource: str = "") -> Body:
        """Replaces the existing object. Raises NotFound, Conflict, Invalid."""
        self.require(resource)
        made = self._shaped(resource, body, {})
        metadata = made["metadata"]
        old = self.get(resource, metadata.get("namespace", ""), metadata.get("name", ""))
        if (uid := metadata.get("uid")) and uid != old["metadata"]["uid"]:
            raise api_errors.replaced_uid(resource, metadata["name"], uid, old["metadata"]["uid"])
        return self._update(
            resource, old, made, self._write(resource, manager, "Update", subresource)
        )

    def _shaped(self, resource: Resource, body: Body, old: Body) -> dict[str, Any]:
        type = self.structures.of(resource)
        made = field_validation.known_fields(
            self.structures, type, body, None if self._is_custom(resource) else old
        )
        metadata = dict(made.get("metadata") or {})
        return {
            **made,
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
        }

    def patch(
        self,
        resource: Resource,
        name: tuple[str, str],
        patch: Any,
        how: PatchType,
        write: tuple[str, str],
    ) -> Body:
        """The object `name` (namespace, name) after the patch; `write` is the manager and the
        subresource.
        """
        old = self.get(resource, *name)
        manager, subresource = write
        made = self._shaped(resource, self._patched(resource, old, patch, how), old)
        if (made["metadata"].get("namespace", ""), made["metadata"].get("name")) != (
            old["metadata"].get("namespace", ""),
            name[1],
        ):
            raise api_errors.bad_request(
                "the name of the object does not match the name on the URL"
            )
        return self._update(
            resource, old, made, self._write(resource, manager, "Update", subresource)
        )

    def _patched(self, resource: Resource, old: Body, patch: Any, how: PatchType) -> Any:
        match how:
            case PatchType.MERGE:
                return patches.apply_merge_patch(old, patch)
            case PatchType.STRATEGIC:
                if self._is_custom(resource):
                    raise api_errors.unsupported_type()
                return patches.apply_strategic_merge(old, patch, resource.kind)
            case PatchType.JSON:
                try:
                    return patches.apply_json_patch(old, patch)
                except patches.PatchFailed as failed:
                    raise api_errors.unprocessable() from failed

    def apply(
        self, resource: Resource, body: Body, manager: str, force: bool, dry_run: bool
    ) -> Body:
        """Server-side apply. Raises Conflict with a cause for each field of another manager;
        Invalid for an unknown field.
        """
        self.require(resource)
        self._check_applied(resource, body, manager)
        metadata = body["metadata"]
        name, namespace = (
            metadata["name"],
            metadata.get("namespace", "") if resource.namespaced else "",
        )
        write = self._write(resource, manager, "Apply")
        old = self.store.get(resource, namespace, name)
        config = Schema.copy(body)
        try:
            merged = managed_fields.after_apply(self.schema, write, old or {}, config, force)
        except field_sets.KeyMissing as missing:
            raise api_errors.unfit(
                f"failed to create typed patch object ({namespace}/{name}): {missing}"
            ) from missing
        if old is not None:
            return self._update(resource, old, merged, write, dry_run=dry_run)
        if metadata.get("uid"):
            why = (
                f"uid mismatch: the provided object specified uid {metadata['uid']}, and no "
                "existing object was found"
            )
            raise api_errors.conflict(resource, name, why)
        managed = merged["metadata"]["managedFields"]
        made = self._new(resource, self._named(resource, merged))
        made["metadata"]["managedFields"] = managed
        return made if dry_run else self._insert(resource, made)

    def _check_applied(self, resource: Resource, body: Body, manager: str) -> None:
        if (body.get("apiVersion"), body.get("kind")) != (resource.api_version, resource.kind):
            raise api_errors.bad_request(
                f"invalid object type: {body.get('apiVersion', '')}, Kind={body.get('kind', '')}"
            )
        metadata = body.get("metadata") or {}
        if not metadata.get("name"):
            raise api_errors.not_allowed()
        if metadata.get("managedFields"):
            raise api_errors.bad_request("metadata.managedFields must be nil")
        if not manager:
            cause = api_errors.required("fieldManager", "is required for apply patch")
            raise api_errors.invalid(api_errors.PATCH_OPTIONS, "", [cause])
        if resource.namespaced:
            self._admit_apply(resource, metadata)
        field_validation.refuse_unfit(self.structures, resource, body)

    def _admit_apply(self, resource: Resource, metadata: Mapping[str, Any]) -> None:
        namespace = metadata.get("namespace", "")
        if self.store.get(resource, namespace, metadata["name"]) is None:
            self._admit(resource, namespace, metadata["name"])

    def _update(
        self, resource: Resource, old: Body, new: Body, write: Write, dry_run: bool = False
    ) -> Body:
        metadata, before = dict(new["metadata"]), old["metadata"]
        name = before["name"]
        if metadata.get("uid", before["uid"]) != before["uid"]:
            immutable = api_errors.invalid_value(
                "metadata.uid", metadata["uid"], "field is immutable"
            )
            raise api_errors.invalid(resource, name, [immutable])
        if metadata.get("resourceVersion") not in (None, "", before["resourceVersion"]):
            raise api_errors.conflict(resource, name)
        for field in _KEPT:
            metadata.pop(field, None)
            if field in before:
                metadata[field] = before[field]
        metadata["resourceVersion"] = before["resourceVersion"]
        if not resource.namespaced:
            metadata.pop("namespace", None)
        made = registry_strategy.on_update(
            resource,
            old,
            self.mutate(resource, {**new, "metadata": metadata}, False),
            self._has_status(resource),
            write.manager.subresource,
        )
        if "generation" in before and registry_strategy.desired(made) != registry_strategy.desired(
            old
        ):
            made["metadata"] = {**made["metadata"], "generation": before["generation"] + 1}
        if write.manager.operation == "Update":
            made["metadata"]["managedFields"] = managed_fields.after_update(
                self.schema, write, old, made
            )
        if not made["metadata"].get("managedFields"):
            made["metadata"].pop("managedFields", None)
        validation.check(resource, old, made)
        if made == old:
            return old
        if dry_run:
            return made
        return self._settled(resource, made)

    def _settled(self, resource: Resource, body: dict[str, Any]) -> Body:
        """Stores an object, or deletes it if its last finalizer was removed."""
        metadata = body["metadata"]
        waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if resource == NAMESPACE:
            waits = waits or (body.get("spec") or {}).get("finalizers")
        if "deletionTimestamp" in metadata and not waits:
            return self._removed(resource, body)
        return self._insert(resource, body)

    def _removed(self, resource: Resource, body: Body) -> Body:
        gone = self.store.remove(resource, body)
        if resource == registry_strategy.CRD:
            for custom, _ in type_schema.custom_kinds(gone):
                for item in self.store.all(custom):
                    self.store.remove(custom, item)
                self.structures.remove(custom)
                self._custom.discard((custom.group, custom.kind))
        return gone

    def put(self, resource: Resource, seen: Body, **parts: Any) -> Body | None:
        """Writes top-level parts of an object for the cluster's own actors, regardless of its
        version; returns None for a deleted one.

        These fields get no owner; our appliers do not set them.
        """
        metadata = seen["metadata"]
        stored = self.store.get(resource, metadata.get("namespace", ""), metadata["name"])
        if stored is None or stored["metadata"]["uid"] != metadata["uid"]:
            return None
        made = {**stored, **parts}
        return stored if made == stored else self._settled(resource, made)

    # --- ending

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        how: DeleteOptions = registry_strategy.DEFAULT,
    ) -> Body:
        """The terminating object, or a Status if it is deleted. Raises NotFound, and Conflict for
        another uid.
        """
        body = self.get(resource, namespace, name)
        metadata = body["metadata"]
        if how.uid and how.uid != metadata["uid"]:
            raise api_errors.other_uid(resource, name, how.uid, metadata["uid"])
        if resource == NAMESPACE and name in _ALWAYS_THERE:
            raise api_errors.forbidden(resource, name, "this namespace may not be deleted")
        grace = registry_strategy.grace_seconds(body, how.grace) if resource == POD else 0
        finalizers = registry_strategy.finalizers_of(metadata, how.propagation)
        waits = bool(finalizers or grace or resource == NAMESPACE)
        if (
            waits
            and "deletionTimestamp" in metadata
            and metadata.get("deletionGracePeriodSeconds", 0) <= grace
        ):
            return body
        ending = registry_strategy.ending(body, self.now() + grace, grace, finalizers)
        if resource == NAMESPACE:
            ending["status"] = {**ending.get("status", {}), "phase": "Terminating"}
        if waits:
            return self.store.put(resource, ending)
        gone = self._removed(resource, ending)
        if resource == POD:
            return gone
        return registry_strategy.success(resource, name, metadata["uid"])

    def finalize(self, namespace: Body) -> None:
        """Deletes a namespace whose content is gone."""
        self._settled(NAMESPACE, {**namespace, "spec": {}})

    # --- shared

    def _write(
        self, resource: Resource, manager: str, operation: str, subresource: str = ""
    ) -> Write:
        who = Manager(manager, operation, resource.api_version, subresource)
        ignored = frozenset(
            {"spec"} if subresource else {"status"} if self._has_status(resource) else ()
        )
        return Write(who, timestamps.text(self.now()), self.structures.of(resource), ignored)

    def _is_custom(self, resource: Resource) -> bool:
        return (resource.group, resource.kind) in self._custom

    def _has_status(self, resource: Resource) -> bool:
        return "status" in self.structures.fields(self.structures.of(resource))
