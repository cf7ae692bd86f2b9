"""Mutation run: one change at a time in the decisions, and whether their own fast tests fail.

`python -m tests.mutants [--count N] [--seed S] [MODULE ...]`; N is 0 for every mutant. Each mutant
is a forked process that imports the changed module in place of the real one and runs the tests of
its package that enter the changed function, until one fails.

An own script, because neither mutmut nor cosmic-ray fits: mutmut 3 changes no code outside
functions and none in decorated ones, takes no sample, and copies the tree; cosmic-ray writes each
mutant into the work tree, takes no sample, and starts an interpreter for each, which takes longer
than these tests do.

The same seed gives the same mutants and the same results: Hypothesis is derandomized, tests run
in order of the calls they make, and the limit of a mutant is CPU time.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mutants.operators import Mutant, mutants

ROOT = Path(__file__).parents[2]
EXPLAINED = Path(__file__).with_name("explained.toml")
PACKAGES = {
    "gitops_ds/daemonset": "tests/daemonset",
    "gitops_ds/rollouts/decisions": "tests/rollouts",
    "gitops_ds/rollouts/causes": "tests/staging",
    "gitops_ds/rollouts/staging": "tests/staging",
    "gitops_ds/rollouts/approvals": "tests/staging",
    "gitops_ds/rollouts/reverts": "tests/staging",
    "gitops_ds/rollouts/waves": "tests/staging",
    "gitops_ds/deploy/plan": "tests/plan",
    "gitops_ds/ownership": "tests/plan",
}
# Tests of single modules that are in other folders, since they need the loop around them.
FURTHER = {
    "gitops_ds/daemonset/competing_controller.py": (
        "tests/controller/test_competing_controller.py",
    ),
    "gitops_ds/daemonset/node_pods.py": ("tests/rollouts/test_waiting_pods.py",),
    "gitops_ds/daemonset/node_room.py": ("tests/controller/test_direct_scheduling.py",),
    "gitops_ds/daemonset/rollout_forecast.py": ("tests/controller/test_preview.py",),
    "gitops_ds/daemonset/shadow.py": ("tests/observe/test_shadow.py",),
    "gitops_ds/daemonset/shadow_views.py": ("tests/observe/test_shadow.py",),
    "gitops_ds/deploy/plan/added_fields.py": ("tests/deploy/test_added_fields.py",),
    "gitops_ds/deploy/plan/rollout_uses.py": ("tests/deploy/test_rollout_uses.py",),
    "gitops_ds/rollouts/decisions/rollout_holds.py": ("tests/deploy/test_rollout_attribution.py",),
    "gitops_ds/rollouts/staging/staging.py": (
        "tests/deploy/test_rollouts.py",
        "tests/deploy/test_rollout_commands.py",
        "tests/deploy/test_proven_templates.py",
    ),
    "gitops_ds/rollouts/causes/template_causes.py": (
        "tests/deploy/test_cause_search.py",
        "tests/deploy/test_template_commits.py",
    ),
}
FAST = (
    "not slow and not controlplane and not system and not renderers and not forge"
    " and not metrics and not browser"
)
# limit of CPU time: these seconds for the imports, these for each test, and its calls
CPU_SECONDS, TEST_SECONDS, CALLS_A_SECOND = 5, 2, 1_000_000
MEMORY = 3 << 30
EXAMPLES = 50  # of a property without settings of its own
SURVIVED = "survived"

Calls = dict[str, dict[str, int]]  # by test: calls of `path:line of function`


class _Finder(importlib.machinery.SourceFileLoader):
    """Imports one module from a changed tree."""

    def __init__(self, mutant: Mutant) -> None:
        name = ".".join(mutant.path.relative_to(ROOT).with_suffix("").parts)
        super().__init__(name.removesuffix(".__init__"), str(mutant.path))
        self.mutant = mutant

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.mutant.tree(), self.path, "exec")


class _Plugin:
    """Selects and orders tests, and records their calls or the first one that fails. `selected`
    are the tests with their usual number of calls.
    """

    def __init__(self, selected: Mapping[str, int] | None) -> None:
        self.selected = selected
        self.calls: Calls = {}
        self.killer = ""

    def pytest_sessionstart(self) -> None:
        chosen: dict[str, Any] = {
            "derandomize": True,
            "database": None,
            "phases": (Phase.explicit, Phase.generate),
            "max_examples": EXAMPLES,
        }
        settings.register_profile("mutants", settings(), **chosen)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.selected is not None:
            place = {name: index for index, name in enumerate(self.selected)}
            items[:] = sorted(
                (item for item in items if item.nodeid in place), key=lambda it: place[it.nodeid]
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if self.selected is not None:  # SIGPROF ends the process
            signal.setitimer(signal.ITIMER_PROF, _seconds(self.selected[item.nodeid]))
            return (yield)
        calls: Counter[CodeType] = Counter()

        def profile(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                calls[frame.f_code] += 1

        sys.setprofile(profile)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            named = self.calls[item.nodeid] = {"all": calls.total()}
            for code, number in calls.items():
                named[f"{code.co_filename}:{code.co_firstlineno}"] = number

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.killer = self.killer or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.killer = self.killer or f"import of {report.nodeid}"


def _seconds(calls: int) -> float:
    return TEST_SECONDS + calls / CALLS_A_SECOND


def _pytest(paths: Iterable[str], selected: Mapping[str, int] | None) -> _Plugin:
    plugin = _Plugin(selected)
    # the parent process has imported plugins that pytest would rewrite
    warnings = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    quiet = [*warnings, "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"]
    code = pytest.main([*quiet, "-m", FAST, *sorted(paths)], [plugin])
    if code and not plugin.killer:
        plugin.killer = f"exit code {int(code)} of pytest"
    return plugin


def _forked(work: Callable[[], object], seconds: int) -> Any:
    """The result of a function in a process of its own with limits; None if it exceeds one."""
    reading, writing = os.pipe()
    errors = os.dup(2)
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.alarm(20 * seconds)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            try:
                answer = json.dumps(work())
            except MemoryError:
                answer = ""
            with os.fdopen(writing, "w") as pipe:
                pipe.write(answer)
        except Exception:
            os.write(errors, traceback.format_exc().encode())
            os.kill(os.getppid(), signal.SIGTERM)
        finally:
            os._exit(0)
    os.close(writing)
    os.close(errors)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def _module(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules() -> list[Path]:
    """The modules that are changed."""
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def tests_of(module: str) -> tuple[str, ...]:
    """The folder of a module's tests, and further ones."""
    own = next(tests for package, tests in PACKAGES.items() if module.startswith(f"{package}/"))
    return own, *FURTHER.get(module, ())


def _baseline(modules: Iterable[str]) -> tuple[Calls, list[str]]:
    """The calls of each test on the real modules, and the modules of others that it imports, in
    this order: `_asyncio` before `asyncio` leaves tasks that know no timeout.
    """
    tests = {path for module in modules for path in tests_of(module)}

    def work() -> object:
        plugin = _pytest(tests, None)
        return [plugin.killer, plugin.calls, list(sys.modules)]

    killer, calls, modules = _forked(work, 300) or ("it exceeds the limits", {}, [])
    if killer:
        raise SystemExit(f"without a mutant the tests fail: {killer}")
    return calls, [name for name in modules if name.split(".")[0] not in ("gitops_ds", "tests")]


def _judges(mutant: Mutant, calls: Calls) -> dict[str, int]:
    """The tests of the mutant's package that enter its function with all their calls, those with
    few first; code outside functions is that of every test.
    """
    own = tests_of(_module(mutant.path))
    inside = f"{mutant.path}:{mutant.function}" if mutant.function else "all"
    chosen = [name for name in calls if name.startswith(own) and inside in calls[name]]
    chosen.sort(key=lambda name: (calls[name]["all"], name))
    return {name: calls[name]["all"] for name in chosen}


def _verdict(mutant: Mutant | None, judges: Mapping[str, int]) -> str:
    """The test that kills it, or `survived`; of None, the test that fails on the real modules."""
    if not judges:
        return SURVIVED

    def work() -> object:
        if mutant is not None:
            sys.meta_path.insert(0, _Finder(mutant))
        return _pytest({name.partition("::")[0] for name in judges}, judges).killer

    answer = _forked(work, CPU_SECONDS + int(_seconds(sum(judges.values()))))
    return "the time or memory limit" if answer is None else answer or SURVIVED


def main() -> int:
    """1 if a mutant survives without an explanation, or an explanation has no mutant."""
    options = argparse.ArgumentParser(prog="python -m tests.mutants")
    options.add_argument("--count", type=int, default=120, help="mutants in the sample, 0 for all")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("modules", nargs="*", help="paths; without them every module")
    chosen = options.parse_args()
    os.chdir(ROOT)
    os.environ["TEST_PROFILE"] = "fast"
    sys.dont_write_bytecode = False  # else pytest compiles its tests for every mutant
    paths = [Path(name).resolve() for name in chosen.modules] or modules()
    every = {path: mutants(path) for path in paths}
    explained: dict[str, dict[str, str]] = tomllib.loads(EXPLAINED.read_text())
    pool = [mutant for of_module in every.values() for mutant in of_module]
    count = min(chosen.count or len(pool), len(pool))
    sample = sorted(random.Random(chosen.seed).sample(range(len(pool)), count))
    begin = time.monotonic()
    calls, others = _baseline({_module(mutant.path) for mutant in pool})
    for name in others:
        if not name.startswith("__"):
            _import(name)
    control = _verdict(None, {name: number["all"] for name, number in calls.items()})
    if control != SURVIVED:
        raise SystemExit(f"without a mutant it fails in the process of a mutant: {control}")
    results: Counter[str] = Counter()
    for index in sample:
        mutant = pool[index]
        name = _module(mutant.path)
        verdict = _verdict(mutant, _judges(mutant, calls))
        outcome = f"killed by {verdict}"
        if verdict == SURVIVED:
            reason = explained.get(name, {}).get(mutant.key)
            outcome = f"survived, explained: {reason}" if reason else "SURVIVED"
        results[outcome.split()[0].rstrip(",")] += 1
        print(f"{name}:{mutant.line}  {mutant.key}  {outcome}", flush=True)
    for path, of_module in every.items():
        name = _module(path)
        for key in explained.get(name, {}).keys() - {mutant.key for mutant in of_module}:
            results["stale"] += 1
            print(f"{EXPLAINED.name}: {name} has no mutant {key}")
    killed = results["killed"] / max(1, count)
    print(
        f"{count} of {len(pool)} mutants, seed {chosen.seed}: {results['killed']} killed "
        f"({killed:.1%}), "
        f"{results['survived']} explained, {results['SURVIVED']} survived, "
        f"{results['stale']} explanations without a mutant; {time.monotonic() - begin:.0f} s"
    )
    return 1 if results["SURVIVED"] or results["stale"] else 0


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError:  # made at run time; the fork imports it
        return


if __name__ == "__main__":
    sys.exit(main())
