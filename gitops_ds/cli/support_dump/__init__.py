"""`gitops-ds support-dump`: a redacted archive for bug reports."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import click

from gitops_ds.cli.parameters import candidates, formats, options
from gitops_ds.core.plain_text import counted


@dataclass(frozen=True, kw_only=True)
class SupportDumpArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds support-dump`."""

    file: str | None
    settings: str | None
    logs: bool
    output: formats.Output


@options.command(SupportDumpArgs)
@options.option(
    "--file",
    shell_complete=candidates.files,
    help="The archive to write; default: gitops-ds-support-TIME.tar.gz here.",
)
@options.option(
    "--settings",
    shell_complete=candidates.files,
    help="The settings file of the service; those in the cluster are included without it.",
)
@options.option(
    "--logs/--no-logs",
    default=True,
    show_default=True,
    help="Include logs and metrics of the service's pods.",
)
@options.connection
@formats.output("text", "json")
async def support_dump(args: SupportDumpArgs) -> int:
    """Write an archive of versions, settings, state, agents, nodes, events and logs for a bug
    report; secrets are redacted.
    """
    from gitops_ds.cli.support_dump import archive, collect
    from gitops_ds.core import errors
    from gitops_ds.kube.client.rest import HttpReader

    now = time.time()
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    file = Path(args.file or f"gitops-ds-support-{moment}.tar.gz")
    limits = archive.DumpLimits()
    dump = await collect.local(args.settings)
    try:
        async with args.open_cluster() as cluster:
            raw = (cluster.text, limits) if args.logs and isinstance(cluster, HttpReader) else None
            await collect.cluster(dump, cluster, args.state_namespace, raw)
    except errors.ClusterError as error:
        dump.missing.append(f"cluster: {error}")
    data = archive.archive(dump, limits, now)
    archive.write(file, data)
    if args.output == "json":
        fields = {
            "file": str(file),
            "bytes": len(data),
            "parts": sorted(dump.parts),
            "unread": dump.missing,
        }
        formats.show_json(formats.document("SupportDump", **fields))
        return 0
    for line in dump.missing:
        options.say(f"not read: {line}", quiet=args.quiet)
    click.echo(
        f"{file}: {counted(len(dump.parts), 'part')}, {len(data) / 1024:,.0f} KiB; "
        "review it before "
        "you send it"
    )
    return 0
