"""Runs helm and kustomize with an empty environment, a temporary directory, and limits of time,
memory and output.

They have no network unless allowed, and no files but their copy (`confine`). On a system without
such isolation their proxy is a closed port, and callers reject URLs. Their PATH is an empty
directory.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

import msgspec

from gitops_ds.core.sources.repository_limits import (
    MIB,
    PROGRAMS,
    TOGETHER,
    AllowedRenderers,
    RepositoryLimits,
)
from gitops_ds.core.values import replace
from gitops_ds.source.sandbox import memory

# The output is read as one file of manifests, with that limit.
RENDER = RepositoryLimits(seconds=PROGRAMS.seconds, bytes=10 * MIB)
# A separate program, never imported: ctypes takes 1 MiB.
CONFINE = Path(memory.__file__).with_name("confine.py")
_STDERR_BYTES = 64 * 1024
# The discard port is closed: an attempt to use the network fails at once with "connection refused".
_NOWHERE = "http://127.0.0.1:9"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# The variables of a program with network: proxies and trusted certificates, no secrets.
_OF_NETWORK = (
    *_PROXIES,
    "NO_PROXY",
    *(name.lower() for name in (*_PROXIES, "NO_PROXY")),
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


class Means(msgspec.Struct, frozen=True):
    """The resources of a render: programs on the path `search` (None: PATH), limits, and the cache
    directory.

    Without `cached` every program runs, and its output is not cached. `ends` is the deadline of all
    renders together, in the time of the event loop.
    """

    allowed: AllowedRenderers = PROGRAMS
    limits: RepositoryLimits = RENDER
    search: str | None = None
    cache: Path | None = None
    cached: bool = True
    ends: float = math.inf

    @property
    def output_cache(self) -> Path | None:
        """The cache of what programs printed."""
        return self.cache if self.cached else None

    def timed(self) -> Means:
        """The same with a deadline for one snapshot, from now on: the time of a few programs for
        all of them.
        """
        return replace(
            self, ends=asyncio.get_running_loop().time() + TOGETHER * self.limits.seconds
        )


class ProgramResult(msgspec.Struct, frozen=True):
    """The result of a program: its complete stdout, or `problem` with the reason for its absence;
    and stderr.
    """

    output: bytes
    stderr: str = ""
    problem: str = ""
    failed: bool = False


def found(name: str, search: str | None) -> str | None:
    """The path of the program, None if it is not installed."""
    return shutil.which(name, path=search)


def identity(program: str) -> str:
    """Identifies the version of the program without running it: path, size and time."""
    file = Path(program).stat()
    return f"{Path(program).resolve()} {file.st_size} {file.st_mtime_ns}"


def environment(home: Path, *, network: bool = False) -> dict[str, str]:
    """The complete environment of a program: an empty home, and without `network` a closed port as
    proxy.
    """
    proxies = {each: _NOWHERE for name in _PROXIES for each in (name, name.lower())}
    if network:
        proxies = {name: os.environ[name] for name in _OF_NETWORK if name in os.environ}
    empty = str(home)
    return {
        **proxies,
        "PATH": empty,
        "HOME": empty,
        "TMPDIR": empty,
        "GIT_ALLOW_PROTOCOL": "none",
        "LC_ALL": "C",
    }


@lru_cache(maxsize=1)
def isolation() -> str:
    """How this system isolates programs from the network: `seccomp`, `namespace` or `none`, tested
    once by a child process.
    """
    for way in ("seccomp", "namespace"):
        words = _confined([], RENDER, way)
        if (
            sys.platform == "linux"
            and subprocess.run(  # noqa: S603
                words, stdin=subprocess.DEVNULL, check=False
            ).returncode
            == 0
        ):
            return way
    return "none"


async def run(
    command: Sequence[str],
    environment: dict[str, str],
    means: Means,
    own: Path | None = None,
    *,
    network: bool = False,
) -> ProgramResult:
    """Runs a program to its end, or kills it with its children. It has no files but those in `own`
    and of the system, if this can confine it so; all for None.
    """
    limits = means.limits
    way = "none" if network else await asyncio.to_thread(isolation)
    seconds = min(limits.seconds, means.ends - asyncio.get_running_loop().time())
    if seconds <= 0 < limits.seconds:
        return ProgramResult(
            b"", problem=f"was not run: the other renders took {TOGETHER * limits.seconds:g} s"
        )
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *_confined(command, limits, way, own),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        try:
            code = await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            return ProgramResult(b"", problem=f"did not finish within {seconds:.3g} s")
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if max(_size(output), _size(errors)) >= _cap(limits):
            return ProgramResult(b"", problem=f"writes more than {_cap(limits):,} bytes")
        stderr = _text(errors)
        if code == 0:
            output.seek(0)
            return ProgramResult(output.read(), stderr)
        if code == -signal.SIGXCPU:
            return ProgramResult(
                b"", problem=f"needs more than {math.ceil(limits.seconds):g} s of CPU time"
            )
        if code < 0 or "out of memory" in stderr or "cannot allocate memory" in stderr:
            return ProgramResult(
                b"",
                problem=f"needs more than {memory.here().program // MIB} MiB of memory, or was "
                "killed by another process",
            )
        return ProgramResult(b"", stderr, failed=True)


def _cap(limits: RepositoryLimits) -> int:
    """POSIX counts the size of files in blocks of 512 bytes."""
    return max(1, limits.bytes // 512) * 512


def _confined(
    command: Sequence[str], limits: RepositoryLimits, way: str, own: Path | None = None
) -> list[str]:
    """The command with limits on file size, memory, CPU time and core dumps; without network, and
    files outside of `own`, if the system can isolate it.
    """
    share = memory.here().program
    options = {
        "memory": share,
        "file": _cap(limits),
        "seconds": math.ceil(limits.seconds),
        "way": way,
        "own": str(own or ""),
    }
    return [sys.executable, "-I", "-S", str(CONFINE), json.dumps(options), "--", *command]


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _text(file: IO[bytes]) -> str:
    """The last part of the file."""
    file.seek(max(0, _size(file) - _STDERR_BYTES))
    return file.read().decode("utf-8", "replace")
