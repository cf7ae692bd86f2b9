"""The rules whose violations reading and rendering a repository find. Checks of rendered objects
find further violations of some of them.
"""

from __future__ import annotations

from typing import Final

from gitops_ds.core.finding import Severity, advice, refused

UNKNOWN_FIELD: Final = refused("DS003", "unknown field")
WRONG_TYPE: Final = refused("DS004", "value has the wrong type")
MISSING_FIELD: Final = refused("DS005", "required field is missing")
INVALID_VALUE: Final = refused("DS006", "value is not allowed")
INVALID_NAME: Final = refused("DS011", "name, label or annotation is invalid")
NO_KIND: Final = advice("DS016", Severity.WARNING, "object has no apiVersion and kind")
INVALID_AFFINITY: Final = refused("DS306", "node affinity is invalid")
PLAIN_SECRET: Final = advice("DS514", Severity.ERROR, "secret in plain text")
SHARED_NODE: Final = refused("DS602", "variants of an agent can share a node")
LEFT_OUT_NODE: Final = refused("DS603", "variants of an agent can leave out an expected node")
NO_NODE: Final = advice("DS604", Severity.ERROR, "agent matches no node")
NOT_RENDERED: Final = refused("DS801", "repository cannot be rendered")
UNDEFINED_NAME: Final = refused("DS802", "name is not defined")
NO_MATCH: Final = refused("DS803", "override or patch matches nothing")
UNUSED_FILE: Final = advice("DS804", Severity.INFO, "file is never used")
UNREAD_OBJECTS: Final = refused("DS804", "files with objects are not read")
NO_OBJECTS: Final = advice(
    "DS804", Severity.WARNING, "no object of the repository is for a cluster"
)
NO_ENVIRONMENT: Final = refused("DS806", "environment not found")
IMPOSSIBLE: Final = refused("DS808", "rollout policy cannot be carried out")

# Reading files. Their findings are warnings for files that no rule checks.
SYMBOLIC_LINK: Final = refused("SRC001", "a symbolic link is not followed: replace it by the file")
SUBMODULE: Final = refused(
    "SRC002",
    "a submodule is not read: add its files to the repository, or manage it as a repository of its "
    "own",
)
LARGE_FILE: Final = refused(
    "SRC003", "a file exceeds the size limit: remove it from the repository"
)
INVALID_FILE_NAME: Final = refused(
    "SRC004",
    "a name is not a valid UTF-8 path inside the repository, or not a regular file: rename or "
    "remove it",
)
LARGE_REPOSITORY: Final = refused(
    "SRC005",
    "the repository exceeds the limit of files or bytes: set a smaller directory "
    "(`repository.path`) or raise `repository.limits`",
)
NO_KUSTOMIZE: Final = refused(
    "SRC010",
    "neither kustomize nor kubectl is installed: install one, or commit the output of `kustomize "
    "build`",
)
REMOTE_RESOURCE: Final = refused(
    "SRC011",
    "a kustomization refers to a remote resource, and nothing is downloaded: commit a copy and "
    "refer to it",
)
NO_FILE: Final = refused(
    "SRC012", "a kustomization refers to a file that does not exist: correct the path"
)
KUSTOMIZE_FAILED: Final = refused(
    "SRC013", "kustomize rejects a kustomization: fix the reported error"
)
INVALID_KUSTOMIZATION: Final = refused(
    "SRC014",
    "a kustomization is not a single object, or has a chart: list charts under `helm:` of the "
    "agent's `source.yaml`",
)
OVER_LIMIT: Final = refused(
    "SRC015",
    "preparing a commit exceeds the limit of time or memory: make the commit smaller, or give the "
    "pod more memory",
)
