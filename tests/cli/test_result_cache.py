"""The cache of results saves work and changes no result; entries of another writer are ignored."""

from __future__ import annotations

import hashlib
import json
import math
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitops_ds.checks.engine import check as validation
from gitops_ds.cli.check import run as check_run
from gitops_ds.cli.check.model import CheckInput, CheckResult
from gitops_ds.cli.check.result_cache import ResultCache
from gitops_ds.core.sources.source_tree import NO_RESULTS, CachedResults, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source.render import parsed_objects
from gitops_ds.yaml import parser
from tests import profiles
from tests.checks.test_rule_pages import GOOD
from tests.cli.commands import invoked
from tests.plan.world import daemonset
from tests.render import snapshots
from tests.truth import bases

TESTS = Path(__file__).parents[1]
SETTINGS = PurePosixPath("gitops-ds.yaml")


def judged(
    snapshot: SourceTree, known: CachedResults = NO_RESULTS, namespace: str = ""
) -> CheckResult:
    return check_run.of(CheckInput(replace(snapshot, cached=known), None, {}, namespace=namespace))


def learnt(checked: CheckResult, known: CachedResults = NO_RESULTS) -> CachedResults:
    """What the next run finds in the cache."""
    with tempfile.TemporaryDirectory() as directory:
        memory = ResultCache(Path(directory) / "checks", "name", b"secret", few=0)
        memory.save(known, checked)
        return memory.load()


def outcome(checked: CheckResult) -> tuple[object, ...]:
    return checked.findings, [one.bundle for one in checked.prepared]


@cache
def repositories() -> dict[str, SourceTree]:
    """Manifests of all sorts, each as a repository."""
    cases = [path / "repo" for path in sorted((TESTS / "render/cases").iterdir())]
    found = {
        path.parent.name: snapshots.of_folder(path)
        for path in [*cases, TESTS.parent / "examples-repo"]
    }
    inputs = {
        PurePosixPath(f"{path.name}.yaml"): (path / "input.yaml").read_bytes()
        for path in (TESTS / "checks/cases").iterdir()
    }
    real = {
        PurePosixPath(f"{number}-{path.name}"): path.read_bytes()
        for number, path in enumerate(bases.files())
    }
    pages = {
        PurePosixPath(f"{page.stem}-{number}.yaml"): part.partition("```")[0].encode()
        for page in (TESTS.parent / "gitops_ds/checks/pages").glob("*.md")
        for number, part in enumerate(page.read_text().split("```yaml\n")[1:])
    }
    return {
        **found,
        "good": fleet_of(3),
        **{
            name: SourceTree(None, files)
            for name, files in {"cases": inputs, "pages": pages, "real": real}.items()
        },
    }


def fleet_of(number: int) -> SourceTree:
    texts = {f"{n}.yaml": GOOD.replace("name: agent", f"name: agent-{n}") for n in range(number)}
    return snapshots.of_texts({**texts, "plain.json": json.dumps(daemonset("plain"))})


NAMES = (
    "bind",
    "config",
    "facts",
    "patches",
    "plain-files",
    "plain-mistakes",
    "references",
    "variants",
    "good",
    "cases",
    "pages",
)


@pytest.mark.parametrize("name", [*NAMES, pytest.param("real", marks=pytest.mark.slow)])
def test_what_is_remembered_changes_no_result(name: str) -> None:
    snapshot = repositories()[name]
    cold = judged(snapshot)
    known = learnt(cold)
    assert known.files
    assert outcome(judged(snapshot, known)) == outcome(cold)
    assert outcome(judged(snapshot, known, "elsewhere")) == outcome(
        judged(snapshot, NO_RESULTS, "elsewhere")
    )


def test_most_is_remembered() -> None:
    snapshot = fleet_of(5)
    known = learnt(judged(snapshot))
    assert (len(known.files), [len(one) for one in known.clean.values()]) == (6, [5])
    assert all(
        parsed_objects.read(str(path), data, known).remembered
        for path, data in snapshot.files.items()
    )


@pytest.mark.parametrize(
    "line",
    [
        "profile: strict",
        "rules: {DS401: false}",
        "rules: {DS411: true, DS508: true, DS513: true}",
        "rules: {DS413: {registries: [other.example.com]}}",
        'kubernetes: ["1.28", "1.36"]',
        "class: {cni: [agent-0, plain]}",
        "defaults: {namespace: here, labels: {team: a}}",
        "custom: [{name: none, schema: {required: [nothing]}}]",
    ],
)
def test_other_settings_are_another_verdict(line: str) -> None:
    every = 'name: x\nmanifests: ["*.yaml", "*.json"]\n'
    before, after = (
        {**fleet_of(2).files, SETTINGS: text.encode()} for text in (every, every + line)
    )
    known = learnt(judged(SourceTree(None, before)))
    cold = judged(SourceTree(None, after))
    assert outcome(judged(SourceTree(None, after), known)) == outcome(cold)
    # And back, with what both of them found out.
    both = learnt(cold, known)
    assert outcome(judged(SourceTree(None, before), both)) == outcome(
        judged(SourceTree(None, before))
    )


@settings(max_examples=profiles.examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 1500),
            st.sampled_from(["", "x", "\n", ": ", "0", '"', "#", "- "]),
        ),
        max_size=4,
    )
)
def test_any_edit_is_seen(edits: list[tuple[int, int, str]]) -> None:
    snapshot = fleet_of(3)
    known = learnt(judged(snapshot))
    files = dict(snapshot.files)
    for number, at, text in edits:
        path = sorted(files)[number]
        files[path] = files[path][:at] + text.encode() + files[path][at + 1 :]
    after = SourceTree(None, files)
    assert outcome(judged(after, known)) == outcome(judged(after))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3)
    ),
)


@example(value=[math.nan])
@example(value={"a": -math.inf})
@example(value=-(2**63) - 1)
@example(value="\ud800")
@example(value=-0.0)
@given(values)
def test_values_are_given_back_as_they_were_or_not_at_all(value: object) -> None:
    objects = parsed_objects.read("a.json", json.dumps(daemonset("a")).encode())
    (draft,) = objects.drafts
    odd = replace(objects, drafts=(replace(draft, body={**draft.body, "odd": value}),))
    if (line := parsed_objects.remember(odd)) is not None:
        (again,) = parsed_objects.read(
            "a.json", b"x", CachedResults({hashlib.sha256(b"x").hexdigest(): line})
        ).drafts
        assert repr(again.body) == repr(odd.drafts[0].body)
        assert b"\n" not in line


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", '"\\ud800"', "9" * 30])
def test_json_that_only_python_accepts_is_invalid(value: str) -> None:
    data = f'{{"apiVersion": "v1", "kind": "ConfigMap", "{"k" * 1100}": {value}}}'.encode()
    assert parser.read("a.json", data).documents == ()


def test_secrets_are_not_kept() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "n"},
        "stringData": {"a": "hush-hush"},
    }
    known = learnt(judged(snapshots.of_texts({"s.json": json.dumps(secret), "a.yaml": GOOD})))
    assert len(known.files) == 1
    assert not any(b"hush-hush" in line for line in known.files.values())


def test_unused_entries_are_removed(tmp_path: Path) -> None:
    memory = ResultCache(tmp_path / "checks", "name", b"secret", few=0)
    for turn in range(12):
        texts = {
            f"{n}.yaml": GOOD.replace("name: agent", f"name: agent-{turn}-{n}") for n in range(3)
        }
        memory.save(memory.load(), judged(snapshots.of_texts(texts)))
        assert 3 <= len(memory.load().files) <= 12


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-20]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"agent-1", b"agent-9")),
        lambda file: file.parent.chmod(0o777),
        lambda file: ResultCache(file.parent, file.name, b"another", few=0).save(
            NO_RESULTS, judged(fleet_of(3))
        ),
    ],
    ids=["empty", "cut", "changed", "open to all", "by another"],
)
def test_what_may_be_wrong_is_not_believed(tmp_path: Path, harm: Callable[[Path], object]) -> None:
    memory = ResultCache(tmp_path / "checks", "name", b"secret", few=0)
    memory.save(NO_RESULTS, judged(fleet_of(3)))
    assert memory.load() is not NO_RESULTS
    harm(tmp_path / "checks" / "name")
    assert memory.load() is NO_RESULTS


def test_an_entry_under_another_name_is_not_believed(tmp_path: Path) -> None:
    memory = ResultCache(tmp_path / "checks", "name", b"secret", few=0)
    memory.save(NO_RESULTS, judged(fleet_of(3)))
    (tmp_path / "checks" / "name").rename(tmp_path / "checks" / "other")
    assert replace(memory, name="other").load() is NO_RESULTS


def run(home: Path, *arguments: str | Path, **more: str) -> tuple[int, object]:
    unset = dict.fromkeys(("GITOPS_DS_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME"))
    environment = {**unset, "HOME": str(home), **more}
    done = invoked("check", *arguments, "-o", "json", **environment)
    return done.return_value, json.loads(done.stdout)


def test_the_command_remembers_and_forgets(tmp_path: Path) -> None:
    repository, home = tmp_path / "repository", tmp_path / "home"
    repository.mkdir()
    for n in range(101):
        (repository / f"{n}.yaml").write_text(GOOD.replace("name: agent", f"name: agent-{n}"))
    first = run(home, repository, "--no-cache")
    assert not home.exists()
    assert run(home, repository) == first
    entries = list((home / ".cache/gitops-ds/checks").iterdir())
    key = home / ".local/state/gitops-ds/cache-key"
    # files, the report, the key
    assert [stat.S_IMODE(file.stat().st_mode) for file in (*entries, key)] == [0o600, 0o600, 0o600]
    written = [entry.stat().st_mtime_ns for entry in entries]
    assert run(home, repository) == first
    assert [entry.stat().st_mtime_ns for entry in entries] == written
    (repository / "7.yaml").write_text(GOOD.replace("cpu: 50m", "cpu: 5O m"))
    second = run(home, repository)
    assert second == run(home, repository, "--no-cache")
    assert second[0] == 1
    # Entries are valid with the secret of their writer only.
    assert run(home, repository, GITOPS_DS_CACHE_KEY="of the CI") == second
    key.chmod(0o644)
    assert run(home, repository) == second


def test_circumstances_name_all_that_counts() -> None:
    (one,) = judged(fleet_of(1)).prepared
    bundles = [
        one.bundle,
        replace(one.bundle, profile="strict"),
        replace(one.bundle, rules={"DS401": False}),
        replace(one.bundle, rules={"DS413": {"registries": ["a"]}}),
        replace(one.bundle, cluster=replace(one.bundle.cluster, kubernetes=("1.30",))),
    ]
    assert len({validation.circumstances(bundle) for bundle in bundles}) == len(bundles)
