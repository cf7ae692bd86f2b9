"""The arguments and options of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds.cli.parameters import formats, options


@dataclass(frozen=True, kw_only=True)
class DoctorArgs(options.ConnectionArgs, options.CommonArgs):
    """The arguments and options of `gitops-ds doctor`."""

    repository: str | None
    directory: str | None
    path: str
    settings: str | None
    cluster: str
    output: formats.Output

    @property
    def chosen(self) -> str | None:
        """The repository; None: that of the current directory."""
        return self.repository or self.directory
