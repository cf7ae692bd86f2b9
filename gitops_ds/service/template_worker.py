"""The process that renders the templates of ConfigMaps and Secrets, started by `prepare_process`.

It reads no files.
"""

from __future__ import annotations

import os
import pickle

from gitops_ds.deploy.templates import template_object
from gitops_ds.deploy.templates.template_object import TemplateObject
from gitops_ds.deploy.templates.template_selector import TemplateSelector
from gitops_ds.source.sandbox import cpu_timer, limited_process


def work(request: bytes) -> bytes:
    """The rendered templates of each object, by its commit; pickled."""
    job: tuple[tuple[TemplateObject, ...], TemplateSelector] = pickle.loads(request)  # noqa: S301  our own process
    cpu_timer.install()
    all_held, chosen = job
    return pickle.dumps(
        {holder.commit: template_object.render(holder, chosen) for holder in all_held},
        pickle.HIGHEST_PROTOCOL,
    )


if __name__ == "__main__":
    os.umask(0o077)
    limited_process.serve(work)
