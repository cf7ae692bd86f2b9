"""Starts a program with limits and without network, in its own process: `python confine.py LIMITS
-- PROGRAM ARGUMENTS`.

It uses only the standard library, so that it starts within some hundredths of a second. LIMITS is a
JSON object of `Limits`. Every call of socket() is refused by a seccomp filter, which needs no
privilege; if the kernel or the machine lacks it, the program gets an empty network namespace.
https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html

Files are restricted by Landlock, where the kernel has it (Linux 5.13): a chart's schema may refer
to any file of the machine, and a program of a repository must read no secret of the service.
https://www.kernel.org/doc/html/latest/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import stat
import struct
import sys
from typing import Final, NoReturn

CANNOT_CONFINE: Final = 97  # the exit code
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SECCOMP_MODE_FILTER = 2
# Machine: the audit architecture, and the number of socket().
# https://github.com/torvalds/linux/blob/master/include/uapi/linux/audit.h
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425  # creates sockets too; the same number everywhere
_X32 = 0x40000000  # system calls of another ABI of x86_64
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
# The same numbers on all machines.
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH, _ABI_VERSION = 1, 1
# Of its first version: execute, write, read, list, and the rest for directories.
_READS, _USES, _ALL, _OF_FILES = 0b1101, 0b110, (1 << 13) - 1, 0b111
# Programs and their libraries; none of them has secrets.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES


def limit(kind: int, most: int, more: int = 0) -> None:
    """Lowers a limit of this process and its children, the hard one to `more` above; a lower one is
    kept.
    """
    _, hard = resource.getrlimit(kind)
    soft, hard = (
        (most, most + more)
        if hard == resource.RLIM_INFINITY
        else (min(most, hard), min(most + more, hard))
    )
    resource.setrlimit(kind, (soft, hard))


def die_with_parent() -> None:
    """Makes the kernel end this process when its parent ends."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def without_network(way: str) -> bool:
    """Removes the network of this process and its children, by `seccomp` or a `namespace`; returns
    whether that succeeded.
    """
    if sys.platform != "linux":
        return False
    return _filtered() if way == "seccomp" else way == "namespace" and _apart()


def restricts_files() -> bool:
    """Whether the kernel has Landlock."""
    if sys.platform != "linux":
        return False
    return bool(_libc().syscall(_LANDLOCK_CREATE_RULESET, None, 0, _ABI_VERSION) > 0)


def without_other_files(program: str, own: str) -> bool:
    """Leaves this process and its children only the program, those of the system, and the directory
    `own`; returns whether that succeeded.
    """
    if sys.platform != "linux":
        return False
    libc = _libc()
    handled = struct.pack("=Q", _ALL)
    ruleset = libc.syscall(_LANDLOCK_CREATE_RULESET, handled, len(handled), 0)
    if ruleset < 0:
        return False
    for path in (*_SYSTEM, os.path.realpath(program)):
        _permit(libc, ruleset, path, _READS)
    for path in _DEVICES:
        _permit(libc, ruleset, path, _USES)
    _permit(libc, ruleset, own, _ALL)
    return bool(
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        and libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0
    )


def _permit(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    """Permits what lies below a path; nothing if it does not exist."""
    try:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    access &= _ALL if stat.S_ISDIR(os.fstat(at).st_mode) else _OF_FILES
    libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, at), 0)
    os.close(at)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _filtered() -> bool:
    numbers = _MACHINES.get(platform.machine())
    if numbers is None:
        return False
    architecture, socket = numbers
    refuse_at = 7
    steps = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_JUMP_EQUAL, 0, refuse_at - 2, architecture),
        (_LOAD, 0, 0, 0),  # the number of the system call
        (_JUMP_AT_LEAST, refuse_at - 4, 0, _X32),
        (_JUMP_EQUAL, refuse_at - 5, 0, socket),
        (_JUMP_EQUAL, refuse_at - 6, 0, _IO_URING_SETUP),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(steps), ctypes.addressof(buffer))
    libc = _libc()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(
        libc.prctl(
            _PR_SET_SECCOMP,
            _SECCOMP_MODE_FILTER,
            ctypes.create_string_buffer(program, len(program)),
            0,
            0,
        )
        == 0
    )


def _apart() -> bool:
    """Whether the process has its own network; as root without a user namespace, which keeps the
    owners of files.
    """
    libc = _libc()
    return bool(
        libc.unshare(_CLONE_NEWNET) == 0 or libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
    )


def main(arguments: list[str]) -> NoReturn:
    """Confines this process and executes the program; without a program the exit code reports
    whether confinement is possible.
    """
    options, command = json.loads(arguments[0]), arguments[2:]
    die_with_parent()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails with an error instead
    limit(resource.RLIMIT_CORE, 0)
    if options["memory"]:
        limit(resource.RLIMIT_DATA, options["memory"])
    limit(resource.RLIMIT_FSIZE, options["file"])
    # a signal before SIGKILL, which distinguishes this limit
    limit(resource.RLIMIT_CPU, options["seconds"], 1)
    if options["way"] != "none" and not without_network(options["way"]):
        sys.exit(CANNOT_CONFINE)
    if not command:
        sys.exit(0)
    if options["own"]:
        without_other_files(command[0], options["own"])
    os.execve(command[0], command, dict(os.environ))  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
