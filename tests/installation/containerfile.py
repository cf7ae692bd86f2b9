"""Runs a Containerfile's steps without a container engine: each step is a layer, kept by its
content as engines keep them.

Differences from an engine: the base images are a root from debootstrap (Debian's own Python in
place of python:slim; Go is that of this machine), and root is root. The machine must allow root to
mount.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gitops_ds.core.values import replace

ROOT = Path(__file__).resolve().parents[2]
# How this machine reaches package registries is the machine's business, as with an engine's build.
_OF_THE_MACHINE = re.compile(
    r"^(PIP_.*|GOPROXY|GOFLAGS|GOSUMDB|GONOSUMDB|.*_(CERT|CAINFO|BUNDLE)|SSL_CERT_.*|.*_proxy|.*_PROXY)$"
)


@dataclass(frozen=True, slots=True)
class Image:
    """Layers, the lowest first, and the configuration of its containers."""

    layers: tuple[Path, ...]
    environment: tuple[tuple[str, str], ...] = (
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    )
    user: str = "0:0"
    directory: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    key: str = ""

    @property
    def bytes(self) -> int:
        """Of all files above the base, as in `podman images` without its base image."""
        return sum(_bytes(layer) for layer in self.layers[1:])


def cache() -> Path:
    """The directory of roots and layers, outside of the tree."""
    found = (
        os.environ.get("GITOPS_DS_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gitops-ds"
    )
    return Path(found) / "image"


def instructions(file: Path = ROOT / "Containerfile") -> list[tuple[str, str]]:
    """The words and the rest of each line, lines joined; in place of an argument of a base image
    its default.
    """
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", "")
    lines = [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in text.splitlines() if line.strip())
    ]
    defaults = dict(rest.split("=", 1) for word, rest in lines if word == "ARG")

    def whole(word: str, rest: str) -> str:
        return (
            re.sub(r"\$\{(\w+)\}", lambda argument: defaults[argument[1]], rest)
            if word == "FROM"
            else rest
        )

    return [(word, whole(word, rest)) for word, rest in lines if word != "ARG"]


@dataclass(slots=True)
class Build:
    """The build of one Containerfile."""

    made: dict[str, Image] = field(default_factory=dict)

    def target(self, name: str) -> Image:
        """The image of a stage, from cached and new layers; unused layers are deleted."""
        (cache() / "layers").mkdir(parents=True, exist_ok=True)
        with (cache() / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            image = self._target(name)
            used = {layer.parent for one in self.made.values() for layer in one.layers}
            for layer in (cache() / "layers").iterdir():
                if layer not in used:
                    shutil.rmtree(layer, ignore_errors=True)
            return image

    def _target(self, name: str) -> Image:
        stage = ""
        for word, rest in instructions():
            if word == "FROM":
                if stage == name:
                    break
                base, _, stage = rest.partition(" AS ")
                self.made[stage] = self.made[base] if base in self.made else _base(base)
                continue
            self.made[stage] = self._step(self.made[stage], word, rest)
        return self.made[name]

    def _step(self, image: Image, word: str, rest: str) -> Image:
        match word:
            case "ENV":
                result = dict(image.environment)
                pairs = (pair.partition("=") for pair in shlex.split(rest))
                result |= {
                    name: re.sub(r"\$(\w+)", lambda current: result.get(current[1], ""), value)
                    for name, _, value in pairs
                }
                return replace(image, environment=tuple(result.items()))
            case "LABEL":  # no file of the image depends on it
                return image
            case "USER":
                return replace(image, user=rest)
            case "WORKDIR":
                return replace(image, directory=rest)
            case "ENTRYPOINT":
                return replace(image, entrypoint=tuple(json.loads(rest)))
            case "CMD":
                return replace(image, command=tuple(json.loads(rest)))
            case "RUN":
                assert image.user.startswith("0"), f"RUN as {image.user} is not known here"
                return _layer(
                    image,
                    f"RUN {rest} {image.environment}",
                    lambda upper: _run_step(image, upper, rest),
                )
            case "COPY":
                return self._copy(image, rest)
        raise ValueError(f"{word} is not known here")

    def _copy(self, image: Image, rest: str) -> Image:
        *sources, target = shlex.split(rest)
        stage = sources.pop(0).removeprefix("--from=") if sources[0].startswith("--from=") else ""
        into = target.endswith("/")

        def make(upper: Path) -> None:
            for source in sources:
                place = (
                    upper / target.strip("/") / Path(source).name
                    if into
                    else upper / target.strip("/")
                )
                place.parent.mkdir(parents=True, exist_ok=True)
                if stage:
                    _copy_from(self.made[stage], source, place)
                else:
                    _copy_tracked(source, place)

        origin = self.made[stage].key if stage else _digest_of(sources)
        return _layer(image, f"COPY {rest} {origin}", make)


def run(
    image: Image, *words: str, binds: Sequence[tuple[Path, str]] = ()
) -> subprocess.CompletedProcess[str]:
    """A program in a container of the image: its user, a read-only root, a /tmp of its own."""
    mounts = "".join(
        f"mkdir -p $m{there} && mount --bind {shlex.quote(str(here))} $m{there}\n"
        for here, there in binds
    )
    group = image.user.split(":")[1]
    script = f"""set -e; m=$1; shift
mount -t tmpfs tmpfs $m; mkdir $m/up $m/work $m/root
mount -t overlay overlay -o lowerdir={_lower(image)},upperdir=$m/up,workdir=$m/work $m/root
m=$m/root
mkdir -p $m/proc $m/dev $m/tmp $m{image.directory}
{mounts}mount -t proc proc $m/proc; mount --rbind /dev $m/dev
mount -o remount,ro $m
mount -t tmpfs tmpfs $m/tmp
exec setpriv --no-new-privs chroot --userspec={image.user} --groups={group} $m sh -c 'cd {image.directory} && exec "$@"' sh "$@"
"""  # noqa: E501
    return _unshared(script, *words, environment=dict(image.environment), check=False)


def _run_step(image: Image, upper: Path, command: str) -> None:
    binds = [
        path
        for path in ("/etc/resolv.conf", "/etc/ssl/certs", "/opt/wheels", "/usr/local/go")
        if Path(path).exists()
    ]
    caches = {"GOMODCACHE": "go-modules", "GOCACHE": "go-build"}
    inherited = {name: value for name, value in os.environ.items() if _OF_THE_MACHINE.match(name)}
    mounts = ""
    for name, folder in caches.items():
        (cache() / folder).mkdir(parents=True, exist_ok=True)
        mounts += (
            f"mkdir -p $m/run/{folder} && mount --bind {shlex.quote(str(cache() / folder))} "
            f"$m/run/{folder}\n"
        )
        inherited[name] = f"/run/{folder}"
    for path in binds:
        made = "mkdir -p" if Path(path).is_dir() else "touch"
        mounts += f"mkdir -p $m{Path(path).parent}; {made} $m{path}; mount --bind {path} $m{path}\n"
    script = f"""set -e; m=$1/root; mkdir -p $1/root $1/work
mount -t overlay overlay -o lowerdir={_lower(image)},upperdir={shlex.quote(str(upper))},workdir=$1/work $m
{mounts}mount -t proc proc $m/proc; mount --rbind /dev $m/dev
chroot $m sh -c "$2"
"""  # noqa: E501
    environment = {
        **inherited,
        **dict(image.environment),
        "HOME": "/root",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    if Path("/usr/local/go").exists():
        environment["PATH"] = f"/usr/local/go/bin:{environment['PATH']}"
    _unshared(script, command, environment=environment, check=True, beside=upper.parent)


def _unshared(
    script: str, *words: str, environment: dict[str, str], check: bool, beside: Path | None = None
) -> subprocess.CompletedProcess[str]:
    mount = (beside or cache()) / f"mount.{os.getpid()}"
    mount.mkdir(parents=True, exist_ok=True)
    try:
        shell = ("unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh")
        whole = (*shell, str(mount), *words)
        ended = subprocess.run(whole, capture_output=True, text=True, env=environment, check=False)
        if check and ended.returncode:
            raise RuntimeError(f"{words}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        return ended
    finally:
        shutil.rmtree(mount, ignore_errors=True)


def _base(name: str) -> Image:
    """Debian from debootstrap, for an image of any name."""
    made = subprocess.run(
        [ROOT / "scripts/image", "--base"], stdout=subprocess.PIPE, text=True, check=True
    )
    root = Path(made.stdout.strip())
    return Image((root,), key=name)


def _layer(image: Image, step: str, make: Callable[[Path], None]) -> Image:
    key = hashlib.sha256(f"{image.key}\n{step}".encode()).hexdigest()[:16]
    kept = cache() / "layers" / key
    if not kept.exists():
        partial = kept.with_name(f"{key}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "files").mkdir(parents=True)
        make(partial / "files")
        partial.rename(kept)
    return replace(image, layers=(*image.layers, kept / "files"), key=key)


def _lower(image: Image) -> str:
    return ":".join(str(layer) for layer in reversed(image.layers))


def _copy_from(image: Image, source: str, place: Path) -> None:
    """Copies the content of a path in a container of the stage."""
    script = f"""set -e; mkdir -p $1/root; mount -t overlay overlay -o lowerdir={_lower(image)} $1/root; m=$1/root; shift
if [ -d "$m$1" ]; then mkdir -p "$2"; cp -a "$m$1/." "$2"; else cp -a "$m$1" "$2"; fi
"""  # noqa: E501
    _unshared(script, source, str(place), environment=dict(os.environ), check=True)


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _tracked(source: str) -> list[Path]:
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", source)
    listing = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return sorted(
        ROOT / name for name in listing.split("\0") if name and os.path.lexists(ROOT / name)
    )


def _copy_tracked(source: str, place: Path) -> None:
    for file in _tracked(source):
        there = place / file.relative_to(ROOT / source) if (ROOT / source).is_dir() else place
        _made(there.parent)
        shutil.copy2(file, there, follow_symlinks=False)


def _digest_of(sources: Sequence[str]) -> str:
    parts = (
        f"{file.relative_to(ROOT)} {_digest(file)}" for one in sources for file in _tracked(one)
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _digest(file: Path) -> str:
    return hashlib.sha256(
        str(file.readlink()).encode() if file.is_symlink() else file.read_bytes()
    ).hexdigest()


def _bytes(directory: Path) -> int:
    return sum(
        path.lstat().st_size
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
