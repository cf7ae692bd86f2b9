"""Directories with a kustomization.yaml, turned into plain manifests by the installed kustomize or kubectl.

It runs on a copy in an owner-only directory, and can fetch nothing: what a kustomization names elsewhere is refused before, git is
not on its PATH, and its proxy is a closed port. No plugins, no Helm, no files outside of a kustomization's root, a time limit.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from gitops_ds import errors
from gitops_ds.model.finding import Finding, Place, refusal
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.source import hardening, kustomization
from gitops_ds.source.kustomization import Kustomization
from gitops_ds.source.limits import DEFAULT, Limits

NO_PROGRAM, FAILED = "SRC010", "SRC013"
# Nothing listens on the discard port: whoever tries the network gets "connection refused" at once.
_NOWHERE = "http://127.0.0.1:9"
_AT_ONCE = 2
_KLOG = re.compile(r'^E\d{4} .*?\] "command failed" err="(?P<words>.*)"$', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Which:
    """Which kustomizations: `skip` leaves out files that don't count; `also` builds directories that others use as a base."""

    skip: Callable[[PurePosixPath], bool] = lambda _: False
    also: frozenset[PurePosixPath] = frozenset()


ALL = Which()


async def expand(snapshot: Snapshot, which: Which = ALL, limits: Limits = DEFAULT, search: str | None = None) -> Snapshot:
    """The snapshot with `expanded` (by directory) for each top-level kustomization, and `consumed` for what they are made of.

    What goes wrong with one is a refused finding at its file, and its files count as consumed all the same. `search` is the PATH
    to find kustomize or kubectl on (None: that of the environment). Raises ExpansionFailed when no copy can be written.
    """
    found = kustomization.find(snapshot.files, which.skip)
    if not found:
        return snapshot
    wanted = dict.fromkeys((*kustomization.tops(found), *sorted(d for d in which.also if d in found)))
    reached = {top: kustomization.reach(top, found, snapshot.files) for top in wanted}
    consumed = {f for r in reached.values() for f in r.files} | {f for f in snapshot.files if _of_component(f, found)}
    findings = [f for r in reached.values() for f in r.findings]
    buildable = [top for top in wanted if not any(f.refused for f in reached[top].findings)]
    expanded: dict[PurePosixPath, bytes] = {}
    for top, result in (await _build(buildable, found, snapshot.files, limits, search)).items():
        if isinstance(result, Finding):
            findings.append(result)
        else:
            expanded[top] = result
    return replace(
        snapshot,
        findings=(*snapshot.findings, *dict.fromkeys(findings)),
        expanded={**snapshot.expanded, **expanded},
        consumed=snapshot.consumed | consumed,
    )


def _of_component(file: PurePosixPath, found: Mapping[PurePosixPath, Kustomization]) -> bool:
    """Whether the file lies in a component that nobody uses: patches without what they patch."""
    return any(k.component and file.is_relative_to(directory) for directory, k in found.items())


async def _build(
    tops: list[PurePosixPath],
    found: Mapping[PurePosixPath, Kustomization],
    files: Mapping[PurePosixPath, bytes],
    limits: Limits,
    search: str | None,
) -> dict[PurePosixPath, bytes | Finding]:
    if not tops:
        return {}
    command = program(search)
    if command is None:
        message = "neither kustomize nor kubectl is installed; install one, or commit the output of kustomize build"
        return {top: refusal(NO_PROGRAM, message, Place(str(found[top].file))) for top in tops}
    gate = asyncio.Semaphore(_AT_ONCE)
    try:
        with tempfile.TemporaryDirectory(prefix="gitops-ds-") as name:
            root = await asyncio.to_thread(_copy, Path(name), files)

            async def one(top: PurePosixPath) -> bytes | Finding:
                async with gate:
                    return await _run(command, root, found[top].file, limits)

            return dict(zip(tops, await asyncio.gather(*map(one, tops)), strict=True))
    except OSError as error:
        raise errors.ExpansionFailed(f"no copy for kustomize can be written: {error.strerror}; free some space") from None


def program(search: str | None = None) -> tuple[str, ...] | None:
    """The command that builds a kustomization: `kustomize build`, else `kubectl kustomize`, else None."""
    if kustomize := shutil.which("kustomize", path=search):
        return (kustomize, "build")
    if kubectl := shutil.which("kubectl", path=search):
        return (kubectl, "kustomize")
    return None


def _copy(directory: Path, files: Mapping[PurePosixPath, bytes]) -> Path:
    root = directory.resolve()
    copy = root / "copy"
    for path, data in files.items():
        target = copy / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    (root / "empty").mkdir()
    return root


async def _run(command: tuple[str, ...], root: Path, file: PurePosixPath, limits: Limits) -> bytes | Finding:
    directory = root / "copy" / file.parent
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), _NOWHERE)
    empty = str(root / "empty")
    environment = {**proxies, "PATH": empty, "HOME": empty, "TMPDIR": empty, "GIT_ALLOW_PROTOCOL": "none", "LC_ALL": "C"}
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            *hardening.capped((*command, str(directory)), limits.bytes)[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        try:
            _, said = await asyncio.wait_for(process.communicate(), limits.seconds)
        except TimeoutError:
            return refusal(FAILED, f"kustomize did not finish within {limits.seconds:g} s; make it smaller", Place(str(file)))
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode != 0:
            message = f"kustomize refuses it: {sentence(said.decode('utf-8', 'replace'), root / 'copy')}"
            return refusal(FAILED, message, Place(str(file)))
        output.seek(0)
        return output.read()


def sentence(words: str, root: Path) -> str:
    """kustomize's own last sentence, without the paths of our copy and kubectl's log prefix; at most 500 characters."""
    lines = [line for line in words.strip().splitlines() if line.strip() and not line.startswith("# Warning")]
    text = " ".join(lines[-3:]) if lines else "it says nothing"
    if klog := _KLOG.match(text):
        text = klog["words"].replace('\\"', '"').replace("\\n", " ")
    text = text.removeprefix("Error: ").replace(f"{root}/", "").replace(str(root), ".").replace(str(root.parent), ".")
    return "".join(c for c in text if c.isprintable())[:500]
