"""A process of this program for work on the content of a repository, with limits of time and
memory; its end also ends its children.

Request and result are in unnamed files; both ends are this program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, NoReturn

import msgspec

from gitops_ds.source.sandbox import confine, memory

MIB: Final = 1 << 20
_NO_MEMORY, _TOO_LONG = 98, 99  # exit codes
# The locations of this program and its caches, and the variables that git needs; no credentials.
_KEPT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "PYTHONPATH",
    "GITOPS_DS_CACHE",
    "XDG_CACHE_HOME",
    memory.VARIABLE,
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_LAST = 8192  # bytes of the end of its stderr


class ProcessLimits(msgspec.Struct, frozen=True):
    """`seconds` from start to end; `memory` of its data and the length of its `answer` in bytes."""

    seconds: float
    memory: int
    answer: int


class ProcessResult(msgspec.Struct, frozen=True):
    """The answer of the process, or the `problem`. `last` is the last line of its stderr."""

    data: bytes = b""
    problem: str = ""
    last: str = ""
    timed_out: bool = False


async def call(
    module: str, request: bytes, limits: ProcessLimits, *, private: bool = False
) -> ProcessResult:
    """Runs the module as a program on the request. Raises OSError if the process can't be started.

    `private` content is kept in memory instead of files, and the program's stderr is dropped.
    """
    environment = {
        name: os.environ[name]
        for name in (*_KEPT, *_PROXIES, *map(str.lower, _PROXIES))
        if name in os.environ
    }
    command = (sys.executable, "-P", "-m", module, str(limits.memory), str(limits.answer))
    with _nameless(private) as stdin, _nameless(private) as stdout, _nameless(private) as stderr:
        stdin.write(request)
        stdin.seek(0)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
        try:
            code = await asyncio.wait_for(process.wait(), limits.seconds)
        except TimeoutError:
            return ProcessResult(
                problem=f"takes more than {limits.seconds:g} s",
                last="" if private else _last_line(stderr),
                timed_out=True,
            )
        finally:
            if process.returncode is None:
                # Its children end with it (PR_SET_PDEATHSIG).
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        last = "" if private else _last_line(stderr)
        if code:
            return _failed(code, limits, last)
        stdout.seek(0)
        return ProcessResult(stdout.read(), last=last)


def _failed(code: int, limits: ProcessLimits, last: str) -> ProcessResult:
    if code == _TOO_LONG:
        return ProcessResult(
            problem=f"makes more than {limits.answer // MIB} MiB of objects", last=last
        )
    if code == _NO_MEMORY or code < 0:
        return ProcessResult(
            problem=f"needs more than {limits.memory // MIB} MiB of memory", last=last
        )
    return ProcessResult(
        problem=f"fails, which is a bug in gitops-ds to be reported{f' ({last})' if last else ''}"
    )


def _nameless(private: bool) -> IO[bytes]:
    return os.fdopen(os.memfd_create("gitops-ds"), "w+b") if private else tempfile.TemporaryFile()


def _last_line(file: IO[bytes]) -> str:
    file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST))
    lines = file.read().decode("utf-8", "replace").split("\n")
    return next((line for line in reversed(lines) if line), "")


def serve(work: Callable[[bytes], bytes]) -> NoReturn:
    """The main function of such a module: answers the request within the limits, and exits."""
    most, answer = int(sys.argv[1]), int(sys.argv[2])
    confine.die_with_parent()
    # When the pod runs out of memory, the kernel ends this process before the service.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # Only the soft limit: programs that it starts have their own shares.
    resource.setrlimit(
        resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    try:
        data = work(sys.stdin.buffer.read())
        if len(data) > answer:
            os._exit(_TOO_LONG)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except MemoryError:
        os._exit(_NO_MEMORY)
    os._exit(0)  # only memory remains to clean up


def note(line: str) -> None:
    """Writes the current work to stderr, for the report if the process is killed."""
    with contextlib.suppress(OSError):
        os.write(2, line.replace("\n", " ").encode("utf-8", "backslashreplace") + b"\n")
