"""The commit of a template: the one that gave an agent the template that it has in Git."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gitops_ds.core.objects import Digest, Key


class TemplateCause(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of the commit that gave a DaemonSet its template in Git.

    `source` is the digest of the template. `commit` is the commit of the branch itself that changed
    the template to it, with its author, the time in seconds since 1970, and the subject. `commits`
    are all that turned the template before into this one, newest first; a template before that was
    halted or never applied does not count, so its commits are among them. Not `exact`: too many
    commits, or commits that can't be rendered; the cause is one of `commits`. Not `is_applied`: the
    template waits, such as that of a suspended DaemonSet. `head` is the commit with which the
    template was applied first: the newest one of that time.
    """

    source: str
    commit: str
    author: str = ""
    at: float = 0.0
    subject: str = ""
    commits: tuple[str, ...] = ()
    exact: bool = True
    is_applied: bool = True
    head: str = ""


class RenderedCommit(msgspec.Struct, frozen=True):
    """What a commit makes of the files: the digest of each manifest, and of the template of each
    DaemonSet, and the file of each.
    """

    manifests: Mapping[Key, Digest]
    templates: Mapping[Key, str]
    files: Mapping[Key, str] = msgspec.field(default_factory=dict)
