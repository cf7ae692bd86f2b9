"""Image references, parsed by the grammar of registries, and the rules about them.

Sources: https://pkg.go.dev/github.com/distribution/reference and
https://kubernetes.io/docs/concepts/containers/images/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gitops_ds.checks.engine.rule import Check, Violation, containers, items, rule
from gitops_ds.core.finding import Fix, Mend, Severity, advice
from gitops_ds.core.objects import Body, Path

_CACHED: Final = 4096  # a fleet has some hundred images, each in many manifests


class Reference(NamedTuple):
    """The parts of an image reference; absent parts are empty."""

    registry: str
    repository: str
    tag: str
    digest: str


@lru_cache(_CACHED)
def parse(text: str) -> Reference:
    """The parts of a reference. A colon before a slash separates the port of the registry; after
    the last slash it separates the tag.

    The first part is a registry if it contains a dot or a colon, or is `localhost`; otherwise it
    belongs to the path of the repository.
    """
    name, _, digest = text.partition("@")
    folder, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    path = folder + slash + last
    first, has_more, rest = path.partition("/")
    if has_more and ("." in first or ":" in first or first == "localhost"):
        return Reference(first, rest, tag, digest)
    return Reference("", path, tag, digest)


def _images(body: Body) -> Iterator[tuple[Path, Reference, Mapping[str, Any]]]:
    for way, container in containers(body):
        image = container.get("image")
        if image:
            yield (*way, "image"), parse(image), container


@rule(advice("DS410", Severity.ERROR, "image has no version"))
def one_version(body: Body) -> Iterator[Violation]:
    """The image has no version, so nodes can run different ones."""
    for path, image, container in _images(body):
        if not image.digest and image.tag in ("", "latest"):
            what = "the tag latest" if image.tag else "no tag"
            message = (
                f"{container['image']} has {what}: each node runs the image of the time it was "
                f"pulled; set a version"
            )
            yield Violation(path, message)


@rule(advice("DS411", Severity.INFO, "image has no digest", on=False))
def by_digest(body: Body) -> Iterator[Violation]:
    """The image has no digest; its tag can be moved during a rollout."""
    for path, image, container in _images(body):
        if not image.digest:
            yield Violation(
                path,
                f"{container['image']} has no digest: its tag can be moved during a rollout; add "
                f"@sha256:…",
            )


@rule(advice("DS412", Severity.INFO, "imagePullPolicy is Always for an immutable image", on=False))
def pulled_once(body: Body) -> Iterator[Violation]:
    """An immutable image is pulled at every start."""
    for path, image, container in _images(body):
        if container.get("imagePullPolicy") == "Always" and (
            image.digest or image.tag not in ("", "latest")
        ):
            way = (*path[:-1], "imagePullPolicy")
            message = (
                "every start of a container requests an immutable image from the registry, and "
                "fails if the registry is unavailable"
            )
            yield Violation(
                way, message, Fix("pull it if it is not present", (Mend(way, "IfNotPresent"),))
            )


def from_registries(settings: Mapping[str, Any]) -> Check[Body]:
    """The check with `registries`: the image must start with one of them, each optionally with a
    part of the path (`ghcr.io/acme`).
    """
    allowed = tuple(str(registry).rstrip("/") for registry in items(settings.get("registries")))
    if not allowed:
        return named_registry.check

    def known_registry(body: Body) -> Iterator[Violation]:
        yield from named_registry.check(body)
        for path, image, container in _images(body):
            name = f"{image.registry}/{image.repository}/"
            if image.registry and not any(name.startswith(f"{registry}/") for registry in allowed):
                yield Violation(
                    path,
                    f"{container['image']} is not from a registry that gitops-ds.yaml allows: "
                    f"{', '.join(allowed)}",
                )

    return known_registry


@rule(
    advice("DS413", Severity.WARNING, "image registry is not allowed", on=False),
    from_settings=from_registries,
)
def named_registry(body: Body) -> Iterator[Violation]:
    """The image has no registry."""
    for path, image, container in _images(body):
        if not image.registry:
            message = (
                f"{container['image']} has no registry: the configuration of each node decides "
                f"which one is used; set it"
            )
            yield Violation(path, message)
