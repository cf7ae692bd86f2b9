"""The files of a repository that decide the template of a manifest. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

from gitops_ds.core.sources.bundle import Bundle, Manifest


def own(manifest: Manifest) -> frozenset[str]:
    """The file of a manifest, and the folder of its agent."""
    base = manifest.origin.base.file
    return frozenset(filter(None, (base, _agent_folder(base))))


def deciding(manifest: Manifest, bundle: Bundle) -> frozenset[str]:
    """The files and directories whose change can change a manifest, also by the removal of a value
    that no file has any more: those of its agent, cluster and environment, and those that the
    renderers read. Files of another agent count only if the manifest has a value of that agent.
    """
    origin, base = manifest.origin, manifest.origin.base.file
    files = {base, *(pointer.file for pointers in origin.set_by.values() for pointer in pointers)}
    files |= own(manifest)
    places = {"gitops-ds.yaml", ".gitopsdsignore", f"agents/{manifest.agent}"}
    places |= {f"clusters/{bundle.cluster.name}.yaml"}
    places |= {f"environments/{bundle.cluster.environment}.yaml"}
    agents = places | {folder for file in files if (folder := _agent_folder(file))}
    # an archive of a chart has no files of its own
    rendered = base in bundle.consumed or PurePosixPath(base).name == "source.yaml"
    for file in bundle.consumed if rendered else ():
        folder = _agent_folder(file)
        if folder is None or folder in agents:
            places |= {file, folder or PurePosixPath(file).parent.as_posix()}
    return frozenset(files | places)


def _agent_folder(file: str) -> str | None:
    parts = PurePosixPath(file).parts
    return f"agents/{parts[1]}" if len(parts) > 2 and parts[0] == "agents" else None
