"""The settings of templates in the cluster, and of what may be named at all."""

from __future__ import annotations

from gitops_ds.core.objects import CONFIG_MAP, SECRET
from gitops_ds.deploy.templates.template_selector import TemplateSelector
from gitops_ds.ownership.own_objects import OwnAccount
from gitops_ds.ownership.permissions import AllowList
from gitops_ds.service.settings import service


def test_templates_are_read_only_when_configured() -> None:
    assert service.parse({}).chosen_templates is None
    assert service.parse({"templates": {}}).chosen_templates == TemplateSelector(
        kinds=(CONFIG_MAP, SECRET)
    )
    selector = {"selector": "a=b", "namespaces": ["x"], "kinds": ["Secret"], "anywhere": True}
    assert service.parse({"templates": selector}).chosen_templates == TemplateSelector(
        "a=b", ("x",), (SECRET,), anywhere=True
    )


def test_the_objects_of_the_service_are_protected_in_any_namespace() -> None:
    settings = service.parse({"cluster": {"namespace": "elsewhere"}})
    assert settings.apply_options.allowed == AllowList(own=OwnAccount(frozenset({"elsewhere"})))
    rules = {"namespaces": ["x"], "kinds": [], "clusterScoped": False, "itself": True}
    parsed = service.parse({"apply": {"allow": rules}}).apply_options.allowed
    assert parsed == AllowList(
        frozenset(["x"]),
        frozenset(),
        cluster_scoped=False,
        required_for_work=False,
        itself=True,
        own=OwnAccount(frozenset({"gitops-ds"})),
    )
