"""Real parts for tests, started on first use and shared by the tests of one worker."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import os
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from gitops_ds.testing.simulator import virtual_time
from tests import controlplane, profiles
from tests.forges.gitea import Gitea

profiles.load()
# The variables of the caller's git must not affect tests, and each one requires a process of `env`
# per process of git (git/hardening.py).
for name in [name for name in os.environ if name.startswith("GIT_")]:
    del os.environ[name]

# The control planes that tests share, and how many workers have one of each. Users of a plane are
# grouped by module, so that a worker starts few planes (2.4 seconds of a core each) and no worker
# has a longer chain than the whole run.
SHARED_PLANES = {"control_plane_without_daemonsets": 2, "control_plane": 2, "api_server": 3}
# Session fixtures whose idle programs use CPU (a control plane 4 % of a core): they end with the
# last test that uses them, not with the session.
IDLE_COSTS = frozenset({*SHARED_PLANES, "audited", "plane", "gitea"})
_spaces = itertools.count()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without garbage collections, and excludes the modules and items from later ones:
    they live as long as the process, and each full collection would visit all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        # fewer collections of the many small objects: 2 % of the time of the tests
        gc.set_threshold(20_000, 10, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Collects garbage until none is left, and excludes what remains from the two collections with
    which pytest looks for errors of finalizers: each would visit the objects of all tests.
    """
    while gc.collect():
        pass
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Selects what the profile tests, and orders it for several workers."""
    if profiles.FAST:
        _sample(config, items)
    _group(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Ends the idle programs of this test, unless the next test of the worker is of its group."""
    result = yield
    group = item.get_closest_marker("xdist_group")
    kept = set(getattr(nextitem, "fixturenames", ()))
    if nextitem is None or group is None or nextitem.get_closest_marker("xdist_group") != group:
        # All that the test requested; `fixturenames` has no fixtures that were requested by name.
        requested = item._request._fixture_defs  # type: ignore[attr-defined]
        for name in IDLE_COSTS.intersection(requested) - kept:
            if requested[name].scope == "session":
                requested[name].finish(item._request)  # type: ignore[attr-defined]
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Plays an asynchronous test, which is a scene: with the fixture or the function `play` of its
    module, which gives it the arguments before `/` and gets those of its mark `play` and its
    fixtures of the same name, or in virtual time.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    scene = functools.partial(pyfuncitem.obj, **arguments)
    play: Any = pyfuncitem.funcargs.get("play") or getattr(pyfuncitem.module, "play", None)
    if play is None:
        virtual_time.run(scene())
        return True
    options = pyfuncitem.get_closest_marker("play") or pytest.mark.play().mark
    common = arguments.keys() & inspect.signature(play).parameters
    play(scene, *options.args, **options.kwargs, **{name: arguments[name] for name in common})
    return True


def _sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects most rows of the tables that are marked `sampled`."""
    tables: dict[str, list[str]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            tables[item.nodeid.partition("[")[0]].append(item.nodeid)
    chosen = {row for rows in tables.values() for row in profiles.sample(rows)}
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        sampled = item.get_closest_marker("sampled") and item.nodeid not in chosen
        (dropped if sampled else kept).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def _group(items: list[pytest.Item]) -> None:
    """Groups the users of each shared plane; slow tests start first, tests without a group last."""
    for item in items:
        used = [name for name in SHARED_PLANES if name in getattr(item, "fixturenames", ())]
        if used and not item.get_closest_marker("xdist_group"):
            share = zlib.crc32(item.nodeid.partition("::")[0].encode()) % SHARED_PLANES[used[0]]
            item.add_marker(pytest.mark.xdist_group(f"{used[0]}-{share}"))
    items.sort(
        key=lambda item: (
            item.get_closest_marker("slow") is None,
            item.get_closest_marker("xdist_group") is None,
        )
    )


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    """A whole control plane with the built-in DaemonSet controller and three nodes."""
    options = controlplane.Wanted(
        nodes=3, pod_delete_milliseconds=controlplane.POD_DELETE_MILLISECONDS
    )
    yield from _running(tmp_path_factory, options)


@pytest.fixture(scope="session")
def control_plane_without_daemonsets(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[controlplane.ControlPlane]:
    """A control plane without its DaemonSet controller, and three nodes."""
    yield from _running(tmp_path_factory, controlplane.Wanted(nodes=3, daemonset_controller=False))


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    """An API server and etcd, without controllers."""
    yield from _running(tmp_path_factory, controlplane.Wanted(controllers=False))


@pytest.fixture
def space(request: pytest.FixtureRequest) -> str:
    """A new namespace of the shared control plane that the test uses."""
    used = next(name for name in SHARED_PLANES if name in request.fixturenames)
    name = f"space-{next(_spaces)}"
    request.getfixturevalue(used).kubectl("create", "namespace", name)
    return name


def _running(
    directories: pytest.TempPathFactory, options: controlplane.Wanted
) -> Iterator[controlplane.ControlPlane]:
    plane = controlplane.ControlPlane(directories.mktemp("controlplane"), options)
    try:
        yield plane.start()
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def gitea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gitea]:
    """A running Gitea with only an administrator."""
    server = Gitea(tmp_path_factory.mktemp("gitea"))
    try:
        yield server.start()
    finally:
        server.stop()
