"""The pod template of an object, and the digests of the templates in Git. Pure."""

from __future__ import annotations

from gitops_ds.core.objects import Body, digest_of
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.bundle import Bundle, Manifest


def digest(manifest: Manifest) -> str:
    """The digest of the template in Git, without the defaults of the API server."""
    return digest_of(template_of(manifest.body))[:16]


def rendered(bundle: Bundle) -> RenderedCommit:
    """The digests of the manifests and templates of a commit, and the files of the templates."""
    every = bundle.manifests
    daemonsets = {key: one for key, one in every.items() if key.is_daemonset}
    return RenderedCommit(
        {key: one.digest for key, one in every.items()},
        {key: digest(one) for key, one in daemonsets.items()},
        {key: one.origin.base.file for key, one in daemonsets.items()},
    )


def template_of(body: Body) -> Body:
    """The pod template of a DaemonSet; empty without one."""
    template: Body = (body.get("spec") or {}).get("template") or {}
    return template
