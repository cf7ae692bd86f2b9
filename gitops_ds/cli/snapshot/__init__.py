"""`gitops-ds snapshot`: a cluster snapshot, for checks without access to the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds.cli.parameters import formats, options
from gitops_ds.core.plain_text import counted


@dataclass(frozen=True, kw_only=True)
class SnapshotArgs(options.AccessArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds snapshot`."""

    hash_names: bool


@options.command(SnapshotArgs)
@options.option("--hash-names", is_flag=True, help="Replace node names by hashes.")
@options.access
async def snapshot(args: SnapshotArgs) -> int:
    """Print nodes, DaemonSets, their revisions and the objects they refer to as JSON, for `check
    --snapshot`.
    """
    from gitops_ds.cli.snapshot import cluster_snapshot

    async with args.open_cluster() as cluster:
        bodies = await cluster_snapshot.survey(cluster)
    formats.show_json(cluster_snapshot.published(bodies, hash_names=args.hash_names))
    nodes = sum(body["kind"] == "Node" for body in bodies)
    options.say(
        f"{counted(nodes, 'node')}, {counted(len(bodies) - nodes, 'other object')}",
        quiet=args.quiet,
    )
    return 0
