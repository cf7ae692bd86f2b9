"""helm and kustomize as we run them: nothing of our environment, a directory of their own, limits
of time, memory and output.

They have no network unless they are given it (`confine`); where the system can't take it from them,
their proxy is a closed port, and whoever starts them refuses URLs. Their PATH holds no program.
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
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO

from gitops_ds.model.allowed_renderers import PROGRAMS, AllowedRenderers
from gitops_ds.model.repository_limits import MIB, RepositoryLimits
from gitops_ds.sandbox import confine, memory

# A render is a second's work; what it writes is then read as one file of manifests, with the cap of
# one.
RENDER = RepositoryLimits(seconds=60.0, bytes=10 * MIB)
_TOGETHER = 5
_SAID = 64 * 1024
# Nothing listens on the discard port: whoever tries the network gets "connection refused" at once.
_NOWHERE = "http://127.0.0.1:9"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# What a network may need, and that is no secret of ours: where the proxy is, and whom to believe.
_OF_NETWORK = (
    *_PROXIES,
    "NO_PROXY",
    *(name.lower() for name in (*_PROXIES, "NO_PROXY")),
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


@dataclass(frozen=True, slots=True)
class Means:
    """What a render may use: programs, found on `search` (None: the environment's PATH), limits,
    and where results are kept.

    `ends` is the time of the event loop at which all of them have to be done.
    """

    allowed: AllowedRenderers = PROGRAMS
    limits: RepositoryLimits = RENDER
    search: str | None = None
    cache: Path | None = None
    ends: float = math.inf

    def timed(self) -> Means:
        """The same for one snapshot, from now on: all its programs together get as long as a few of
        them alone.
        """
        return replace(
            self, ends=asyncio.get_running_loop().time() + _TOGETHER * self.limits.seconds
        )


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended: its output where it is whole, else `problem` says why there is none;
    `said` is what it wrote beside.
    """

    output: bytes
    said: str = ""
    problem: str = ""
    failed: bool = False


def found(name: str, search: str | None) -> str | None:
    """Where the program is, None where it is not."""
    return shutil.which(name, path=search)


def identity(program: str) -> str:
    """What tells this program from another version of it, without running it."""
    file = Path(program).stat()
    return f"{Path(program).resolve()} {file.st_size} {file.st_mtime_ns}"


def environment(home: Path, *, network: bool = False) -> dict[str, str]:
    """The whole environment of a program: an empty home, and without `network` a proxy that isn't
    there.
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
    """How the network is taken from programs here: `seccomp`, `namespace` or `none`, tried once by
    a process of its own.
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
    command: Sequence[str], environment: dict[str, str], means: Means, *, network: bool = False
) -> ProgramResult:
    """Runs it to its end, or ends it and all its children."""
    limits = means.limits
    way = "none" if network else await asyncio.to_thread(isolation)
    seconds = min(limits.seconds, means.ends - asyncio.get_running_loop().time())
    if seconds <= 0 < limits.seconds:
        return ProgramResult(
            b"", problem=f"was not run, because the others took {_TOGETHER * limits.seconds:g} s"
        )
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as words:
        process = await asyncio.create_subprocess_exec(
            *_confined(command, limits, way),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=words,
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
        if max(_size(output), _size(words)) >= _cap(limits):
            return ProgramResult(b"", problem=f"writes more than {_cap(limits):,} bytes")
        said = _text(words)
        if code == 0:
            output.seek(0)
            return ProgramResult(output.read(), said)
        if code == -signal.SIGXCPU:
            return ProgramResult(
                b"", problem=f"needs more than {math.ceil(limits.seconds):g} s of CPU time"
            )
        if code < 0 or "out of memory" in said or "cannot allocate memory" in said:
            return ProgramResult(
                b"",
                problem=f"needs more than {memory.here().program // MIB} MiB of memory, or was "
                "ended by somebody else",
            )
        return ProgramResult(b"", said, failed=True)


def _cap(limits: RepositoryLimits) -> int:
    """POSIX counts the size of files in blocks of 512 bytes."""
    return max(1, limits.bytes // 512) * 512


def _confined(command: Sequence[str], limits: RepositoryLimits, way: str) -> list[str]:
    """Under caps on files that it writes, on memory and CPU time, and on core dumps; without a
    network, where there is a way.
    """
    share = memory.here().program
    told = {"memory": share, "file": _cap(limits), "seconds": math.ceil(limits.seconds), "way": way}
    return [sys.executable, "-I", "-S", confine.__file__, json.dumps(told), "--", *command]


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _text(file: IO[bytes]) -> str:
    """The end of what was written."""
    file.seek(max(0, _size(file) - _SAID))
    return file.read().decode("utf-8", "replace")
