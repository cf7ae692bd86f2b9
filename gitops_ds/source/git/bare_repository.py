"""The bare repository in the cache for one address, and the only way to run git on it. Not
thread-safe, except for `interrupt`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import git
import msgspec

from gitops_ds.core import errors
from gitops_ds.core.sources.repository_limits import RepositoryLimits
from gitops_ds.source.git import command_output, directory_lock, error_messages, hardening
from gitops_ds.source.git.address import Address
from gitops_ds.source.git.credentials import credential_files
from gitops_ds.source.git.credentials.credential_values import Credentials
from gitops_ds.source.git.directory_lock import LockResult, PrivateDirectory
from gitops_ds.source.sandbox import memory

_TURN = 0.05  # seconds between two attempts to lock the cache
# Of the share of a command, what its output may have: as text and as objects it takes eight times
# as much.
_SHARE_OF_OUTPUT = 8
_SHARE_OF_CACHE = 6  # of the share of a command, what git's cache of objects may have
_DELETED = "objects.deleted"  # objects that a killed process did not delete completely


class GitOutput(msgspec.Struct, frozen=True):
    """The exit status and the output of a git command."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """stdout as text, without the final newline."""
        return self.stdout.decode("utf-8", "replace").removesuffix("\n")


class _GitCommand(msgspec.Struct, frozen=True):
    """A git command: its arguments, its purpose in messages ("fetch from"), environment and stdin.

    `accepted` are the exit statuses without an error; `largest_file` limits the bytes of each file
    that it writes, `memory` those of its data, `stack` those of the stack of a thread (None: the
    default); `own_session` separates it and its children from the terminal.
    """

    arguments: tuple[str, ...]
    purpose: str
    memory: int
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    input: bytes = b""
    accepted: tuple[int, ...] = (0,)
    largest_file: int | None = None
    stack: int | None = None
    own_session: bool = False

    @property
    def argv(self) -> list[str]:
        """The command line, below a shell that sets the limits."""
        cache = min(self.memory // _SHARE_OF_CACHE, hardening.LARGEST_CACHE)
        command = ["git", "-c", f"core.deltaBaseCacheLimit={cache}", *self.arguments]
        return hardening.capped(command, self.largest_file, self.memory, self.stack)


class BareRepository:
    """A bare repository in the cache directory; only this user can read it."""

    def __init__(
        self,
        address: Address,
        cache: Path,
        limits: RepositoryLimits,
        interrupted: threading.Event | None = None,
        *,
        existing: bool = False,
    ) -> None:
        """Opens or creates it, without credentials: call `authorize` before `run_remote`.

        `existing`: another process created it and may be writing to it. It is opened read-only, so
        that a killed process leaves no files. `interrupted` ends the wait for another process in
        the same cache, before there is a repository to `interrupt`.
        """
        self.address, self.limits = address, limits
        # Whether commands have git's whole share of the memory. A process that prepares a commit
        # has it: there is one at a time.
        self.has_turn = existing
        self._credentials: Credentials | None = None
        self._secrets: tuple[str, ...] = ()
        self._network: Mapping[str, str] = {}
        self._running: subprocess.Popen[bytes] | None = None
        self._held: Any = None  # GitPython kills the process when this is collected
        self._interrupted, self._lock = interrupted or threading.Event(), threading.Lock()
        try:
            # git has another working directory: paths must be absolute.
            cache = cache.resolve()
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._private = None if existing else PrivateDirectory(cache)
        except OSError as error:
            raise errors.SourceError(
                f"the cache directory {cache} can't be used: {error.strerror}"
            ) from None
        try:
            self.path = cache / f"{address.slug}.git"
            self._local = hardening.local(self.path)
            self._repo = self._open(existing=existing)
        except OSError as error:
            self._delete_credentials()
            raise errors.SourceError(
                f"the cache directory {cache} can't be used: {error.strerror}"
            ) from None
        except errors.GitopsError:
            self._delete_credentials()
            raise

    def _delete_credentials(self) -> None:
        """Deletes the credentials from the disk."""
        if self._private is not None:
            self._private.remove()

    def _open(self, *, existing: bool) -> hardening.Repo:
        if not self.path.exists():
            self.path.mkdir(mode=0o700)
        if self.path.stat().st_uid != os.geteuid():
            raise errors.SourceError(
                f"the cache {self.path} belongs to another user; set a directory of your own"
            )
        self.path.chmod(0o700)
        maker = hardening.HardenedGit(self.path)
        maker.update_environment(**self._local)
        try:
            # `git init` is harmless on an existing repository, and repairs one whose creation was
            # interrupted. It always writes `config`.
            if not existing:
                with self.alone():
                    shutil.rmtree(self.path / _DELETED, ignore_errors=True)
                    maker.init(bare=True, quiet=True, template="")
            repo = hardening.Repo(self.path, expand_vars=False)
        except git.GitCommandNotFound:
            raise errors.SourceError("git is not installed; install git 2.39 or newer") from None
        except (git.GitCommandError, git.InvalidGitRepositoryError, git.NoSuchPathError) as error:
            raise self._failure("open", str(getattr(error, "stderr", error))) from None
        # GitPython took these two from the caller's environment.
        repo.git.update_environment(GIT_OBJECT_DIRECTORY=None, GIT_COMMON_DIR=None, **self._local)
        return repo

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other process creates the cache, fetches into it or repacks it meanwhile. What killed
        ones left locked is unlocked, and packs that are incomplete at the end are deleted. Waits as
        long as a git command may take.
        """
        until = time.monotonic() + self.limits.seconds
        with directory_lock.opened(self.path) as number:
            while (result := directory_lock.lock(number, wait=False)) is LockResult.BUSY:
                if self._interrupted.wait(_TURN):
                    raise errors.SourceError(f"{self.address.display} is closed")
                if time.monotonic() > until:
                    raise errors.SourceError(
                        f"another process has used the cache {self.path} of {self.address.display} "
                        f"for {self.limits.seconds:g} s"
                    )
            locks = (*self.path.glob("*.lock"), *(self.path / "refs").rglob("*.lock"))
            for left in directory_lock.left_by_killed(result, locks):
                left.unlink(missing_ok=True)
            try:
                yield
            finally:
                # git deletes them only if it ends by itself, not at a limit of time or size.
                folder = self.path / "objects/pack"
                packs = (*folder.glob("tmp_*"), *folder.glob(".tmp-*"))
                for left in directory_lock.left_by_killed(result, packs):
                    left.unlink(missing_ok=True)

    def pack_bytes(self) -> int:
        """The size of all packs; without a run of git."""
        size = 0
        for pack in (self.path / "objects/pack").glob("*.pack"):
            with contextlib.suppress(FileNotFoundError):  # another process has just repacked it
                size += pack.stat().st_size
        return size

    def empty(self) -> None:
        """Deletes all commits and refs: refs first, then all objects in one step, so that a killed
        process leaves no part of a commit.
        """
        with self.alone():
            shutil.rmtree(self.path / _DELETED, ignore_errors=True)
            (self.path / "packed-refs").unlink(missing_ok=True)
            shutil.rmtree(self.path / "refs")
            (self.path / "objects").rename(self.path / _DELETED)
            self.run("init", "--bare", "--quiet", "--template=", purpose="keep a copy of")
            shutil.rmtree(self.path / _DELETED, ignore_errors=True)
        self._repo.git.clear_cache()

    def authorize(self, credentials: Credentials) -> None:
        """Sets the credentials for the server and deletes the previous ones from the disk. Raises
        UsageError.
        """
        if credentials == self._credentials:
            return
        assert self._private is not None, "an existing repository is opened without network access"
        self._credentials = None  # also after a failure: the same ones are installed again
        for old in self._private.path.iterdir():
            shutil.rmtree(old)
        # A new directory, so that a partly written one is never used.
        installed = credential_files.install(
            self.address, credentials, Path(tempfile.mkdtemp(dir=self._private.path))
        )
        self._network = hardening.network(self.path, self.address, installed)
        self._secrets, self._credentials = installed.secrets, credentials

    @property
    def _share_of_read(self) -> int:
        return memory.here().git if self.has_turn else memory.here().read

    @property
    def objects(self) -> git.Repo:
        """GitPython's repository, to read commits as objects."""
        return self._repo

    def run(
        self,
        *arguments: str,
        purpose: str = "read",
        environment: Mapping[str, str] = {},
        input: bytes = b"",
        may_fail: bool = False,
    ) -> GitOutput:
        """Runs a command on this repository only; every transport is disabled. `environment` has
        additional variables: an index file, an author, keys.

        Raises the SourceError with the cause of a failure; with `may_fail`, exit status 1 is a
        result.
        """
        accepted = (0, 1) if may_fail else (0,)
        return self._run(
            _GitCommand(arguments, purpose, self._share_of_read, environment, input, accepted)
        )

    @contextlib.contextmanager
    def stream(self, *arguments: str, input: bytes) -> Iterator[IO[bytes]]:
        """The stdout of a command as a stream, which ends at the time limit.

        Raises the SourceError with the cause of a failure.
        """
        with tempfile.TemporaryFile() as stream, self._repo.git.custom_environment():
            stream.write(input)
            stream.seek(0)
            command = _GitCommand(arguments, "read", self._share_of_read)
            process = self._start(command, stream)
            timer = threading.Timer(self.limits.seconds, process.kill)
            timer.start()
            try:
                assert process.stdout is not None
                yield process.stdout
                if process.wait() != 0:
                    stderr = (
                        process.stderr.read().decode("utf-8", "replace") if process.stderr else ""
                    )
                    raise self._failure("read", stderr or error_messages.TIMEOUT)
            finally:
                timer.cancel()
                self._end()

    def run_remote(
        self,
        *arguments: str,
        purpose: str,
        largest_file: int | None = None,
        may_fail: bool = False,
    ) -> GitOutput:
        """Runs a command that connects to the address, with the credentials; `largest_file` limits
        the bytes of each file that a fetch writes.
        """
        accepted, shares = (0, 1, 128) if may_fail else (0,), memory.here()
        share = shares.git if largest_file is None else shares.fetch
        return self._run(
            _GitCommand(
                arguments,
                purpose,
                share if self.has_turn else shares.connect,
                self._network,
                accepted=accepted,
                largest_file=largest_file,
                stack=None if self.has_turn else memory.STACK,
                own_session=True,
            )
        )

    def _run(self, command: _GitCommand) -> GitOutput:
        with (
            tempfile.TemporaryFile() as stdin,
            self._repo.git.custom_environment(**command.environment),
        ):
            stdin.write(command.input)
            stdin.seek(0)
            try:
                process = self._start(command, stdin)
            except git.GitCommandNotFound:
                raise errors.SourceError(
                    "git is not installed; install git 2.39 or newer"
                ) from None
            except OSError as error:
                raise errors.SourceError(f"git can't be run: {error.strerror}") from None
            try:
                stdout, stderr_bytes = command_output.read(
                    process, self.limits.seconds, command.memory // _SHARE_OF_OUTPUT
                )
            except subprocess.TimeoutExpired:
                raise self._failure(command.purpose, error_messages.TIMEOUT) from None
            except command_output.OutputTooLong:
                raise self._failure(command.purpose, error_messages.TOO_LONG) from None
            finally:
                self._end()
        stderr = stderr_bytes.decode("utf-8", "replace").removesuffix("\n")
        status = process.returncode
        if status not in command.accepted:
            raise self._failure(command.purpose, stderr or f"git exited with status {status}")
        return GitOutput(status, stdout, stderr)

    def _start(self, command: _GitCommand, stdin: IO[bytes]) -> subprocess.Popen[bytes]:
        """The process, in its own session with its children, because git starts transport
        helpers.
        """
        with self._lock:
            if self._interrupted.is_set():
                raise errors.SourceError(f"{self.address.display} is closed")
            git_of_repo: Any = self._repo.git
            self._held = git_of_repo.execute(
                command.argv, istream=stdin, as_process=True, start_new_session=command.own_session
            )
            process: subprocess.Popen[bytes] = self._held.proc
            self._running = process
            return process

    def _end(self) -> None:
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                _kill(running)
                running.wait()
                for pipe in filter(None, (running.stdout, running.stderr)):
                    pipe.close()

    def interrupt(self) -> None:
        """Kills the running command and prevents new ones. For calls from another thread."""
        self._interrupted.set()
        self.end_command()

    def end_command(self) -> None:
        """Kills the running command. For calls from another thread."""
        with self._lock:
            if self._running is not None:
                _kill(self._running)

    def failure(self, purpose: str, output: GitOutput) -> errors.SourceError:
        """The error for a failure that `may_fail` accepted."""
        return self._failure(purpose, output.stderr)

    def _failure(self, purpose: str, stderr: str) -> errors.SourceError:
        failure = error_messages.CommandFailure(
            purpose, self.address.display, stderr, str(self.path), self.limits.seconds
        )
        return error_messages.translate(failure, self._secrets)

    def close(self) -> None:
        """Ends git's helpers and deletes the credentials from the disk. The repository remains as a
        cache.
        """
        self._repo.close()
        self._delete_credentials()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the process, with its group if it leads one; no effect after its end."""
    if process.poll() is not None:
        return
    if os.getpgid(process.pid) == process.pid:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
