"""The environment of git: no configuration, hook, filter, prompt, redirect or transport except our
own.

GitPython passes on the whole environment, so variables of the caller's shell or hook (GIT_DIR,
GIT_TRACE_CURL, ...) are unset, not only overridden. Every command has a time limit and a limit on
file sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import git

from gitops_ds.core.sources.repository_limits import MIB
from gitops_ds.source.git.address import Address
from gitops_ds.source.git.credentials.credential_files import GitCredentials

LARGEST_CACHE: Final = 32 * MIB  # of objects, in a process of git: a third of git's default
# The caller's GIT_ variables are unset; proxies and the locale of messages are other variables.
_CONFIG = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.symlinks", "false"),
    ("core.autocrlf", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.bigFileThreshold", "8m"),
    ("core.deltaBaseCacheLimit", str(LARGEST_CACHE)),
    # The memory of a repack: one thread, and part of what a fetch may use.
    ("pack.threads", "1"),
    ("pack.windowMemory", "16m"),
    ("pack.deltaCacheSize", "16m"),
    ("core.quotePath", "false"),
    ("credential.helper", ""),
    ("fetch.fsckObjects", "true"),
    ("transfer.fsckObjects", "true"),
    # Old, harmless faults in real histories, which strict checking would reject.
    ("fetch.fsck.zeroPaddedFilemode", "ignore"),
    ("fetch.fsck.badTimezone", "ignore"),
    ("fetch.fsck.missingSpaceBeforeDate", "ignore"),
    ("fetch.recurseSubmodules", "no"),
    ("submodule.recurse", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.gpgSign", "false"),
    ("commit.gpgSign", "false"),
    # Always one pack, never loose objects, so that the limit of a file is the limit of a fetch.
    ("fetch.unpackLimit", "1"),
    ("http.followRedirects", "false"),
    ("http.sslVerify", "true"),
    ("safe.bareRepository", "explicit"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
)
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    # Below 1 kB/s for 30 s the server counts as unresponsive.
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
}


class HardenedGit(git.Git):
    """GitPython's runner of git, without the GIT_ variables of the caller's environment."""

    def execute(self, command: str | Sequence[Any], *args: Any, **options: Any) -> Any:
        """Like GitPython's, with `env -u` for each GIT_ variable that is not ours."""
        strange = [n for n in os.environ if n.startswith("GIT_") and n not in self.environment()]
        prefix = ["env", *(word for name in strange for word in ("-u", name))] if strange else []
        return super().execute(
            [*prefix, *([command] if isinstance(command, str) else command)], *args, **options
        )


class Repo(git.Repo):
    """GitPython's repository with hardened processes."""

    GitCommandWrapperType = HardenedGit


def local(path: Path) -> dict[str, str]:
    """The environment for commands on our own repository, without any transport."""
    config = (*_CONFIG, ("safe.directory", str(path)))
    return {**_ENVIRONMENT, "GIT_DIR": str(path), "GIT_ALLOW_PROTOCOL": "none", **_numbered(config)}


def desk() -> dict[str, str]:
    """The environment for reading the user's work tree: discovered by git, without hooks, monitors
    or transports.
    """
    return {
        **_ENVIRONMENT,
        "GIT_ALLOW_PROTOCOL": "none",
        **_numbered((*_CONFIG, ("safe.directory", "*"))),
    }


def network(path: Path, address: Address, access: GitCredentials) -> dict[str, str]:
    """The environment for commands that connect to the address: its transport only, and the
    credentials.
    """
    scheme = address.scheme.value
    config = (
        *_CONFIG,
        ("safe.directory", str(path)),
        (f"protocol.{scheme}.allow", "always"),
        *access.config,
    )
    return {**local(path), "GIT_ALLOW_PROTOCOL": scheme, **access.environment, **_numbered(config)}


def _numbered(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Configuration pairs in git's environment variables.
    https://git-scm.com/docs/git-config#ENVIRONMENT
    """
    result: dict[str, str] = {}
    count = 0
    for key, value in pairs:
        result |= {f"GIT_CONFIG_KEY_{count}": key, f"GIT_CONFIG_VALUE_{count}": value}
        count += 1
    return {**result, "GIT_CONFIG_COUNT": str(count)}


def capped(
    command: Sequence[str], bytes: int | None, memory: int, stack: int | None = None
) -> list[str]:
    """The command with limits on its memory, on the size of each file that it writes, reported as
    an error instead of a signal, and on the stack of each thread; None: no limit.

    POSIX counts in blocks of 512 bytes and has no memory limit, so it depends on the shell. A stack
    counts as memory from its start: that of curl's thread, which resolves the host, 8 MiB.
    """
    caps = [f"ulimit -d {memory // 1024} 2>/dev/null"]
    caps += [] if stack is None else [f"ulimit -s {stack // 1024} 2>/dev/null"]
    caps += [] if bytes is None else [f'trap "" XFSZ; ulimit -f {max(1, bytes // 512)} || exit']
    return ["sh", "-c", "; ".join([*caps, 'exec "$@"']), "sh", *command]


def git_version() -> tuple[int, ...] | None:
    """The version of the git on the PATH, None without one; blocking."""
    try:
        return tuple(git.Git().version_info)
    except git.GitCommandNotFound:
        return None
