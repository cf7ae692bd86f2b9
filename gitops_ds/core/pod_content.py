"""What the pods of a template run, in the parts that no admission plugin of Kubernetes changes."""

from __future__ import annotations

import msgspec


class ContainerContent(msgspec.Struct, frozen=True, gc=False):
    """A container or an init container. `rest` is a digest of its command, arguments, working
    directory and of how it becomes ready.
    """

    name: str
    image: str
    rest: str


class PodContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The containers of a pod or of a template. `room` is a digest of what the scheduler needs to
    find a node, empty for a pod that has one.
    """

    containers: tuple[ContainerContent, ...]
    room: str = ""
