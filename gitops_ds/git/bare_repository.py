"""Our own bare repository for one address, and the one door through which git is run on it. Not
safe for threads.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import git

from gitops_ds import errors
from gitops_ds.git import credential_files, error_messages, hardening
from gitops_ds.git.address import Address
from gitops_ds.git.credentials import Credentials
from gitops_ds.git.private_directory import Private
from gitops_ds.model.repository_limits import RepositoryLimits
from gitops_ds.sandbox import memory


@dataclass(frozen=True, slots=True)
class Output:
    """What a command of git left: its exit status, and what it wrote."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """stdout as text, without the last line break."""
        return self.stdout.decode("utf-8", "replace").removesuffix("\n")


class Bare:
    """A bare repository in the cache directory that we made ourselves; only this user can read it."""

    def __init__(
        self, address: Address, cache: Path, limits: RepositoryLimits, *, existing: bool = False
    ) -> None:
        """Knows nobody yet: `authorize` comes before the first `talk`.

        `existing`: another process made it and may be writing to it; it is only read, and nothing
        is left behind by a kill.
        """
        self.address, self.limits = address, limits
        self._credentials: Credentials | None = None
        self._secrets: tuple[str, ...] = ()
        self._network: Mapping[str, str] = {}
        self._running: subprocess.Popen[bytes] | None = None
        self._held: Any = None  # GitPython ends a process that nobody holds
        self._interrupted, self._turn = False, threading.Lock()
        try:
            # git runs elsewhere: a path of ours must mean the same there.
            cache = cache.resolve()
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._private = None if existing else Private(cache)
        except OSError as error:
            raise errors.SourceError(
                f"the cache directory {cache} can't be used: {error.strerror}"
            ) from None
        try:
            self.path = cache / f"{address.slug}.git"
            self._local = hardening.local(self.path)
            self._repo = self._open(existing=existing)
        except OSError as error:
            self._forget()
            raise errors.SourceError(
                f"the cache directory {cache} can't be used: {error.strerror}"
            ) from None
        except errors.GitopsError:
            self._forget()
            raise

    def _forget(self) -> None:
        """Takes the credentials off the disk."""
        if self._private is not None:
            self._private.remove()

    def _open(self, *, existing: bool) -> hardening.Repo:
        if not self.path.exists():
            self.path.mkdir(mode=0o700)
        if self.path.stat().st_uid != os.geteuid():
            raise errors.SourceError(
                f"the cache {self.path} belongs to another user; give a directory of your own"
            )
        self.path.chmod(0o700)
        maker = hardening.HardenedGit(self.path)
        maker.update_environment(**self._local)
        try:
            # Harmless on one that is there; mends one whose making was cut off.
            if not existing:
                maker.init(bare=True, quiet=True, template="")
            repo = hardening.Repo(self.path, expand_vars=False)
        except git.GitCommandNotFound:
            raise errors.SourceError("git is not installed; install git 2.39 or newer") from None
        except (git.GitCommandError, git.InvalidGitRepositoryError, git.NoSuchPathError) as error:
            raise self._failure("open", str(getattr(error, "stderr", error))) from None
        # GitPython took these two from the caller's environment.
        repo.git.update_environment(GIT_OBJECT_DIRECTORY=None, GIT_COMMON_DIR=None, **self._local)
        return repo

    def authorize(self, credentials: Credentials) -> None:
        """Comes to the server as these from now on; what was on the disk for others goes away.
        Raises UsageError.
        """
        if credentials == self._credentials:
            return
        assert self._private is not None, "who only reads has nobody to talk to"
        for old in self._private.path.iterdir():
            shutil.rmtree(old)
        # A directory of its own, so that a half-written one is never used.
        found = credential_files.install(
            self.address, credentials, Path(tempfile.mkdtemp(dir=self._private.path))
        )
        self._network = hardening.network(self.path, self.address, found)
        self._secrets, self._credentials = found.secrets, credentials

    @property
    def objects(self) -> git.Repo:
        """GitPython's view, for commits as objects."""
        return self._repo

    def run(
        self, *words: str, doing: str = "read", input: bytes | None = None, may_fail: bool = False
    ) -> Output:
        """Runs a command that only touches our own repository; no transport is allowed to it.

        Raises the SourceError that says why it failed; with `may_fail`, a status of 1 is an answer.
        """
        return self._run(words, {}, doing, input=input, accepted=(0, 1) if may_fail else (0,))

    def run_as(
        self,
        environment: Mapping[str, str],
        *words: str,
        doing: str = "write to",
        input: bytes | None = None,
        may_fail: bool = False,
    ) -> Output:
        """As `run`, with more in the environment: an index file, an author, keys."""
        return self._run(
            words, environment, doing, input=input, accepted=(0, 1) if may_fail else (0,)
        )

    @contextlib.contextmanager
    def stream(self, *words: str, input: bytes) -> Iterator[IO[bytes]]:
        """What a command writes, as it comes: never all of it at once. The time limit ends what is
        still read then.

        Raises the SourceError that says why it failed.
        """
        with tempfile.TemporaryFile() as stream, self._repo.git.custom_environment():
            stream.write(input)
            stream.seek(0)
            process = self._begun(["git", *words], stream, apart=False)
            ended = threading.Timer(self.limits.seconds, process.kill)
            ended.start()
            try:
                assert process.stdout is not None
                yield process.stdout
                if process.wait() != 0:
                    said = (
                        process.stderr.read().decode("utf-8", "replace") if process.stderr else ""
                    )
                    raise self._failure("read", said or error_messages.TIMEOUT)
            finally:
                ended.cancel()
                self._end()

    def talk(
        self, *words: str, doing: str, cap: int | None = None, may_fail: bool = False
    ) -> Output:
        """Runs a command that talks to the address, with our credentials; `cap` limits the bytes of
        any file that it writes.
        """
        return self._run(
            words,
            self._network,
            doing,
            cap=cap,
            accepted=(0, 1, 128) if may_fail else (0,),
            apart=True,
        )

    def _run(
        self,
        words: tuple[str, ...],
        environment: Mapping[str, str],
        doing: str,
        *,
        input: bytes | None = None,
        cap: int | None = None,
        accepted: tuple[int, ...],
        apart: bool = False,
    ) -> Output:
        command = ["git", *words]
        with tempfile.TemporaryFile() as stream, self._repo.git.custom_environment(**environment):
            stream.write(input or b"")
            stream.seek(0)
            try:
                process = self._begun(
                    command if cap is None else hardening.capped(command, cap, memory.here().git),
                    stream,
                    apart,
                )
            except git.GitCommandNotFound:
                raise errors.SourceError(
                    "git is not installed; install git 2.39 or newer"
                ) from None
            except OSError as error:
                raise errors.SourceError(f"git can't be run: {error.strerror}") from None
            try:
                stdout, said = process.communicate(timeout=self.limits.seconds)
            except subprocess.TimeoutExpired:
                raise self._failure(doing, error_messages.TIMEOUT) from None
            finally:
                self._end()
        stderr = said.decode("utf-8", "replace").removesuffix("\n")
        if process.returncode not in accepted:
            raise self._failure(doing, stderr or f"git ended with status {process.returncode}")
        return Output(process.returncode, stdout, stderr)

    def _begun(self, command: list[str], stream: IO[bytes], apart: bool) -> subprocess.Popen[bytes]:
        """The process; `apart` from the terminal, with all that it starts, because git lets others
        talk for it.
        """
        with self._turn:
            if self._interrupted:
                raise errors.SourceError(f"{self.address.display} is closed")
            git_of_repo: Any = self._repo.git
            self._held = git_of_repo.execute(
                command, istream=stream, as_process=True, start_new_session=apart
            )
            process: subprocess.Popen[bytes] = self._held.proc
            self._running = process
            return process

    def _end(self) -> None:
        with self._turn:
            running, self._running = self._running, None
            if running is not None:
                _kill(running)
                running.wait()
                for pipe in filter(None, (running.stdout, running.stderr)):
                    pipe.close()

    def interrupt(self) -> None:
        """For another thread: ends the command that runs, and lets none begin any more."""
        with self._turn:
            self._interrupted = True
            if self._running is not None:
                _kill(self._running)

    def failure(self, doing: str, output: Output) -> errors.SourceError:
        """The error for a command that was let fail."""
        return self._failure(doing, output.stderr)

    def _failure(self, doing: str, words: str) -> errors.SourceError:
        said = error_messages.Failure(
            doing, self.address.display, words, str(self.path), self.limits.seconds
        )
        return error_messages.translate(said, self._secrets)

    def close(self) -> None:
        """Ends git's helpers and takes the credentials off the disk. The repository stays for the
        next time.
        """
        self._repo.close()
        self._forget()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends it with all that it started, or at a terminal it alone; nothing where it ended itself."""
    if process.poll() is not None:
        return
    if os.getpgid(process.pid) == process.pid:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
