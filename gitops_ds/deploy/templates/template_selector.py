"""The selection of cluster objects with templates; the settings import it without the renderer."""

from __future__ import annotations

import msgspec

from gitops_ds.core import names
from gitops_ds.core.objects import CONFIG_MAP, SECRET, Resource

OWNER = "templates-in-cluster"


class TemplateSelector(msgspec.Struct, frozen=True):
    """Selects the objects with templates: labels in selector syntax, namespaces (`*`: all), kinds.

    Those in `home`, the namespace of the service itself, may contain objects of any namespace;
    others only of their own namespace, unless `anywhere`. `cluster` is the name of the cluster, or
    empty.
    """

    selector: str = f"{names.TEMPLATE}=true"
    namespaces: tuple[str, ...] = ()
    kinds: tuple[Resource, ...] = (CONFIG_MAP, SECRET)
    anywhere: bool = False
    home: str = "gitops-ds"
    cluster: str = ""

    @property
    def owner(self) -> str:
        """The owner id of the objects that the templates define."""
        return f"{OWNER}.{self.cluster}" if self.cluster else OWNER
