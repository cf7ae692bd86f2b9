"""A full disk below the cache: a sentence reports it, applied objects stay, and the service
continues when space is free again.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import controlplane, gitservers
from tests.faults.fleets import agents, image, images
from tests.service.test_service import command, started, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("faults"),
]


@contextlib.contextmanager
def on_a_small_disk(
    directory: Path, plane: controlplane.ControlPlane, *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """The service, its log, and its disk of 1 MiB, which is a mount in a namespace of its own, so
    that no rights are needed.
    """
    disk = directory / "disk"
    disk.mkdir()
    mounted = (
        *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
        *('mount -t tmpfs -o size=1m disk "$0" && exec "$@"', str(disk)),
    )
    words, cache = (*mounted, *command(plane, *options)), str(disk / "cache")
    with started(directory, words, GITOPS_DS_CACHE=cache) as (process, log):
        yield process, log, Path(f"/proc/{process.pid}/root{disk}")


def fill(file: Path) -> None:
    """Writes until the disk is full."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 1024)


def test_a_commit_waits_while_the_disk_is_full_and_the_last_one_stays(
    tmp_path: Path, plane: controlplane.ControlPlane, space: str
) -> None:
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit(agents(space, 1))
    words = ("-C", str(upstream.path), "--interval", "1s")
    with on_a_small_disk(tmp_path, plane, *words) as (process, log, disk):
        until(lambda: "is applied" in log.read_text(), log.read_text)
        fill(disk / "filler")
        second = upstream.commit(agents(space, 1, tag=2))
        until(lambda: "no space left on the disk" in log.read_text(), log.read_text)
        assert images(plane, space) == {"agent-00": image(1)}
        (disk / "filler").unlink()
        until(lambda: f"commit {second[:12]} is applied" in log.read_text(), log.read_text)
        assert images(plane, space) == {"agent-00": image(2)}
        assert process.poll() is None
        assert log.read_text().count("no space left on the disk") == 1
        assert "Traceback" not in log.read_text()
