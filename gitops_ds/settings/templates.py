"""The settings of templates in the cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from gitops_ds.deployer.templates.template_selector import TemplateSelector
from gitops_ds.model.objects import CONFIG_MAP, SECRET
from gitops_ds.settings.base import NonEmptyText, SettingsGroup, describe


class TemplateKind(StrEnum):
    """A kind of objects with templates."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105  the kind


_RESOURCES = {TemplateKind.CONFIG_MAP: CONFIG_MAP, TemplateKind.SECRET: SECRET}


class TemplateSettings(SettingsGroup, frozen=True):
    """The ConfigMaps and Secrets with templates."""

    selector: Annotated[
        NonEmptyText, describe("The labels of objects that hold templates, as for kubectl -l.")
    ] = TemplateSelector().selector
    namespaces: Annotated[
        tuple[NonEmptyText, ...],
        describe('Their namespaces; "*" is every namespace. Default: that of the state.'),
    ] = ()
    kinds: Annotated[
        tuple[TemplateKind, ...], msgspec.Meta(min_length=1), describe("Their kinds.")
    ] = tuple(TemplateKind)
    anywhere: Annotated[
        bool,
        describe(
            "Whether a template may name objects of other namespaces than its own, and "
            "cluster-scoped ones."
        ),
    ] = False

    def chosen(self) -> TemplateSelector:
        """The selection, without the service's namespace and the cluster's name."""
        return TemplateSelector(
            selector=self.selector,
            namespaces=self.namespaces,
            kinds=tuple(_RESOURCES[kind] for kind in self.kinds),
            anywhere=self.anywhere,
        )
