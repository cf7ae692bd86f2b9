"""`check --fix`: the files of a work tree are mended where they are written, no more than they say,
all of them or none.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path, PurePosixPath

import click
import pytest
from click.testing import Result

from gitops_ds.core import errors
from gitops_ds.source.git import atomic_write
from tests.cli.commands import invoked
from tests.gitservers import git

AGENT = """\
# The shipper of every node's logs.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
  namespace: logging
  uid: b7e5   # from kubectl get -o yaml
spec:
  revisionHistoryLimit: 1   # never back

  # Selected by name.
  selector: {matchLabels: {app.kubernetes.io/name: agent}}
  template:
    metadata: {labels: {app.kubernetes.io/name: agent}}
    spec:
      # What keeps others away.
      tolerations:
        - key: node.kubernetes.io/not-ready
          operator: Exists
          effect: NoExecute
        # The control plane's.
        - {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
      containers:
        - name: agent
          image: 'registry.example.com/agent:1.2.3'
          resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 128Mi}}
"""
UID = "  uid: b7e5   # from kubectl get -o yaml\n"
LIMIT = "  revisionHistoryLimit: 1   # never back\n"
NOT_READY = """\
        - key: node.kubernetes.io/not-ready
          operator: Exists
          effect: NoExecute
"""
LABELS = """\
  labels:
    app.kubernetes.io/name: agent
    app.kubernetes.io/part-of: agent
    app.kubernetes.io/managed-by: gitops-ds
"""


def check(fleet: Path, *arguments: str | Path) -> Result:
    return invoked("check", fleet, *arguments)


def holding(fleet: Path, files: dict[str, str]) -> Path:
    git(fleet, "init", "--quiet", "--initial-branch=main")
    for name, text in files.items():
        (fleet / name).parent.mkdir(parents=True, exist_ok=True)
        (fleet / name).write_text(text)
    git(fleet, "add", "--all")
    git(fleet, "commit", "--quiet", "--message", "one")
    return fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return holding(tmp_path, {"agent.yaml": AGENT})


def contents(fleet: Path) -> dict[str, bytes]:
    return {str(path.relative_to(fleet)): path.read_bytes() for path in fleet.rglob("*.yaml")}


def test_safe_fixes_are_written_and_reported_and_no_other_byte_changes(fleet: Path) -> None:
    done = check(fleet, "--fix")
    after = (fleet / "agent.yaml").read_text()
    assert LABELS in after
    assert after.replace(LABELS, "") == AGENT.replace(UID, "").replace(LIMIT, "").replace(
        NOT_READY, ""
    )
    for place, rule in (("7:8", "DS013"), ("9:25", "DS211"), ("18:11", "DS305")):
        assert f"fixed agent.yaml:{place}: {rule}: " in done.stderr
    assert "restarts the pods of DaemonSet logging/agent on every node\n" in done.stderr
    assert "4 fixed in 1 file\n" in done.stderr
    assert not {"DS013", "DS211", "DS305", "DS015"} & set(done.stdout.split())
    assert "DS209" in done.stdout, "a proposal is not applied"
    assert "can be fixed with --fix-unsafe\n" in done.stdout


REFUSED = """\
apiVersion: extensions/v1beta1   # from the old days
kind: DaemonSet
metadata: {name: agent, namespace: logging}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata:
      lables: {app: agent}
    spec:
      containers:
        - name: agent
          image: registry.example.com/agent:1.2.3
          imagePullPolicy: always   # or never
          env:
            - {name: PORT, value: 8080}
            - name: VERSION
              value: 1.10   # not 1.1
            - {name: SWITCH, value: yes}
            - {name: MODE, value: 0644}
          ports: [{containerPort: "80"}]
          resources: {requests: {memory: 64mi}}
"""
MENDED = (
    ("extensions/v1beta1", "apps/v1"),
    ("lables", "labels"),
    ("always ", "Always "),
    ("8080", '"8080"'),
    ("1.10 ", '"1.10" '),
    ("yes", '"yes"'),
    ("0644", '"0644"'),
    ('"80"', "80"),
)


def refused(tmp_path: Path, text: str) -> Path:
    settings = "version: v1\nmanifests: [agent.yaml]\nrules: {DS015: false}\n"
    return holding(tmp_path, {"gitops-ds.yaml": settings, "agent.yaml": text})


def test_what_an_api_server_refuses_is_mended_as_it_was_meant(tmp_path: Path) -> None:
    wanted = REFUSED
    for old, new in MENDED:
        wanted = wanted.replace(old, new)
    fleet = refused(tmp_path, REFUSED)
    done = check(fleet, "--fix")
    assert (fleet / "agent.yaml").read_text() == wanted
    assert f"{len(MENDED)} fixed in 1 file\n" in done.stderr


def test_the_message_names_the_text_that_the_fix_writes(tmp_path: Path) -> None:
    fleet = holding(
        tmp_path,
        {
            "map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: a}\n"
            "data: {a: 0644, b: yes, c: 012, d: N, e: 1.10, f: 1_000, g: 0x1F}\n"
        },
    )
    out = check(fleet, "--all").stdout
    for text in ("0644", "yes", "012", "N", "1.10", "1_000", "0x1F"):
        assert f'write "{text}", with quotes' in out
    assert "DS007" not in out  # the type of the field decides
    check(fleet, "--fix")
    assert (
        (fleet / "map.yaml")
        .read_text()
        .endswith(
            'data: {a: "0644", b: "yes", c: "012", d: "N", e: "1.10", f: "1_000", g: "0x1F"}\n'
        )
    )


@pytest.mark.parametrize(
    ("namespace", "options"), [("", ("-n", "logging")), ("namespace: logging, ", ())]
)
def test_the_advice_for_an_object_without_a_namespace_works_in_one_step(
    namespace: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{{}name: m}}\n"
    fleet = holding(tmp_path, {"map.yaml": text.format("")})
    message = "map.yaml:3:1: warning DS014: the namespace is default, which agents share"
    assert message in check(fleet, "--all").stdout
    (fleet / "map.yaml").write_text(text.format(namespace))
    done = check(fleet, "--all", *options)
    assert "0 errors, 0 warnings" in done.stdout


def test_an_ambiguous_scalar_of_a_secret_is_in_no_report(tmp_path: Path) -> None:
    fleet = holding(
        tmp_path,
        {
            "secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a}\n"
            "stringData: {pin: 0123456}\n"
        },
    )
    assert "123456" not in check(fleet, "--all").stdout


def test_what_is_safe_comes_before_a_proposal_for_the_same_place(tmp_path: Path) -> None:
    """DS007 proposes true for `yes` and 420 for `0644`; in a variable both are texts, as DS004
    finds once the API is known.
    """
    fleet = refused(tmp_path, REFUSED)
    check(fleet, "--fix-unsafe")
    after = (fleet / "agent.yaml").read_text()
    assert '{name: SWITCH, value: "yes"}' in after
    assert '{name: MODE, value: "0644"}' in after
    assert "memory: 64Mi" in after


def test_a_fix_of_a_budget_that_is_used_up_is_enough_and_not_too_much(tmp_path: Path) -> None:
    """Two of twelve nodes are broken: 10% is two of them, three are a quarter (DS205). Of six nodes
    three would be too many.
    """
    for nodes, wanted in ((12, 3), (6, 1)):
        many = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{i}"},
                "status": {"conditions": ready(i > 1)},
            }
            for i in range(nodes)
        ]
        (tmp_path / f"nodes-{nodes}.json").write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": many})
        )
        fleet = tmp_path / str(nodes)
        fleet.mkdir()
        refused(
            fleet, AGENT.replace(LIMIT, "  updateStrategy: {rollingUpdate: {maxUnavailable: 1}}\n")
        )
        check(fleet, "--fix-unsafe", "--snapshot", tmp_path / f"nodes-{nodes}.json")
        assert f"maxUnavailable: {wanted}}}" in (fleet / "agent.yaml").read_text()


def ready(whether: bool) -> list[dict[str, str]]:
    return [{"type": "Ready", "status": str(whether)}]


def test_proposals_are_written_on_request(fleet: Path) -> None:
    done = check(fleet, "--fix-unsafe", "-o", "json")
    report = json.loads(done.stdout)
    assert "minReadySeconds: 10" in (fleet / "agent.yaml").read_text()
    assert "priorityClassName: system-node-critical" in (fleet / "agent.yaml").read_text()
    assert not [one for one in report["findings"] if "fix" in one]


def test_what_is_left_decides_the_exit_code(fleet: Path) -> None:
    assert check(fleet, "--fail-on", "info").return_value == 1
    assert check(fleet, "--fix", "--fail-on", "error").return_value == 0
    assert check(fleet, "--fix", "--fail-on", "warning").return_value == 1


def test_without_fix_nothing_is_written_and_a_hint_shows_what_could_be(fleet: Path) -> None:
    done = check(fleet)
    assert contents(fleet) == {"agent.yaml": AGENT.encode()}
    assert "4 can be fixed with --fix, " in done.stdout
    assert " more with --fix-unsafe\n" in done.stdout


def test_quiet_shows_nothing_of_the_fixes(fleet: Path) -> None:
    assert check(fleet, "--fix", "--quiet").stderr == ""


@pytest.mark.parametrize(
    "arguments", [["--fix", "--revision", "main"], ["--fix-unsafe", "--revision", "HEAD"]]
)
def test_a_commit_can_not_be_fixed(fleet: Path, arguments: list[str]) -> None:
    done = check(fleet, *arguments)
    assert isinstance(done.exception, click.UsageError)
    assert contents(fleet) == {"agent.yaml": AGENT.encode()}


def test_a_bare_repository_can_not_be_fixed(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    git(tmp_path, "init", "--quiet", "--bare", str(bare))
    assert isinstance(check(bare, "--fix").exception, click.UsageError)
    assert isinstance(
        check(Path(f"file://{bare}"), "--fix").exception, click.UsageError | errors.UsageError
    )


def test_a_directory_outside_git_can(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/agent.yaml").write_text(AGENT)
    check(tmp_path / "plain", "--fix")
    assert LIMIT not in (tmp_path / "plain/agent.yaml").read_text()


def test_mode_and_neighbours_stay(fleet: Path) -> None:
    (fleet / "agent.yaml").chmod(0o754)
    check(fleet, "--fix")
    assert stat.S_IMODE((fleet / "agent.yaml").stat().st_mode) == 0o754
    assert sorted(path.name for path in fleet.iterdir()) == [".git", "agent.yaml"]


def test_an_accepted_finding_is_not_fixed(fleet: Path) -> None:
    text = AGENT.replace("# never back", "# gitops-ds: ignore DS211 never back").replace(
        "  uid: b7e5   # from kubectl get -o yaml\n",
        '  annotations: {gitops-ds.io/ignore: "DS305=we say it; DS015=later"}\n',
    )
    (fleet / "agent.yaml").write_text(text)
    assert "0 fixed" in check(fleet, "--fix").stderr
    assert (fleet / "agent.yaml").read_text() == text


def test_what_was_known_before_is_not_fixed(
    fleet: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    known = tmp_path_factory.mktemp("known") / "report.json"
    check(fleet, "-o", f"json={known}")
    assert "0 fixed" in check(fleet, "--fix", "--baseline", known).stderr
    assert contents(fleet) == {"agent.yaml": AGENT.encode()}


def templated(most: str, files: dict[str, str] | None = None) -> dict[str, str]:
    """A repository of two clusters whose agent rolls out on as many nodes at once as `most`;
    100% is too many (DS205).
    """
    template = AGENT.replace(UID, "").replace(
        LIMIT, f"  updateStrategy: {{rollingUpdate: {{maxUnavailable: {most}}}}}\n"
    )
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"most": {}, "share": {"type": "integer"}},
    }
    return {
        "gitops-ds.yaml": "version: v1\n",
        "clusters/east.yaml": "environment: production\nnamespace: logging\nagents: {agent: {}}\n",
        "clusters/west.yaml": "environment: staging\nnamespace: logging\nagents: {agent: {}}\n",
        "environments/production.yaml": "{}\n",
        "environments/staging.yaml": "{}\n",
        "agents/agent/params.schema.json": json.dumps(schema),
        "agents/agent/daemonset.yaml": template,
        **(files or {}),
    }


TEMPLATE, VALUES = "agents/agent/daemonset.yaml", "agents/agent/values/production.yaml"


def test_a_value_is_changed_in_the_file_that_sets_it(tmp_path: Path) -> None:
    values = {
        VALUES: "# all of them at once\nmost: 100%   # quick\n",
        "agents/agent/values/staging.yaml": "most: 5%\n",
    }
    fleet = holding(tmp_path, templated('"${most}"', values))
    before = contents(fleet)
    done = check(fleet, "--fix-unsafe")
    assert f"fixed {VALUES}:2:7: DS205: maxUnavailable: 10%\n" in done.stderr
    assert (fleet / VALUES).read_text() == "# all of them at once\nmost: 10%   # quick\n"
    assert (
        contents(fleet)["agents/agent/values/staging.yaml"]
        == before["agents/agent/values/staging.yaml"]
    )


def test_a_value_is_changed_in_the_patch_that_sets_it(tmp_path: Path) -> None:
    patch = (
        "kind: DaemonSet\nmetadata: {name: agent}\nspec: {updateStrategy: {rollingUpdate: "
        "{maxUnavailable: 100%}}}\n"
    )
    path = "/spec/updateStrategy/rollingUpdate/maxUnavailable"
    operation = (
        f"- target: {{kind: DaemonSet}}\n  patch:\n    - {{op: replace, path: {path}, value: "
        f"100%}}\n"
    )
    patches = {
        "agents/agent/patches/production.yaml": patch,
        "agents/agent/patches/staging.yaml": operation,
    }
    fleet = holding(tmp_path, templated("5%", patches))
    check(fleet, "--fix-unsafe")
    after = contents(fleet)
    for name, text in patches.items():
        assert after[name].decode() == text.replace("100%", "10%")
    assert "maxUnavailable: 5%" in after[TEMPLATE].decode()


def test_what_is_put_together_is_left_with_the_place_to_change(tmp_path: Path) -> None:
    values = {VALUES: "share: 100\n", "agents/agent/values/staging.yaml": "share: 5\n"}
    fleet = holding(tmp_path, templated('"${share}%"', values))
    before = contents(fleet)
    done = check(fleet, "--fix-unsafe")
    left = [line for line in done.stderr.splitlines() if line.startswith("not fixed ")]
    assert [
        line
        for line in left
        if "DS205: maxUnavailable: 10% (no single place in the files has the rendered value" in line
    ]
    assert contents(fleet)[VALUES] == before[VALUES]


def test_what_a_fix_would_do_to_others_leaves_it(tmp_path: Path) -> None:
    """The one cluster answers for its finding, the other does not, and the line is the same."""
    answered = (
        "kind: DaemonSet\nmetadata:\n  name: agent\n  annotations: {gitops-ds.io/ignore: DS205=a "
        "small cluster}\n"
    )
    fleet = holding(tmp_path, templated("100%", {"agents/agent/patches/staging.yaml": answered}))
    before = contents(fleet)
    done = check(fleet, "--fix-unsafe")
    assert (
        "it would change DaemonSet logging/agent too on west: change it manually)\n" in done.stderr
    )
    assert b"100%" in contents(fleet)[TEMPLATE]
    assert contents(fleet)[TEMPLATE] != before[TEMPLATE], "the others are applied"


def test_what_only_one_cluster_was_asked_about_is_fixed_for_all_that_have_it(
    tmp_path: Path,
) -> None:
    fleet = holding(tmp_path, templated("100%"))
    check(fleet, "--fix-unsafe", "--cluster", "east")
    assert b"maxUnavailable: 10%" in contents(fleet)[TEMPLATE]


def test_a_fix_of_a_template_applies_to_all_clusters_and_is_reported_once(tmp_path: Path) -> None:
    fleet = holding(tmp_path, templated("5%"))
    done = check(fleet, "--fix")
    assert done.stderr.count(f"fixed {TEMPLATE}") == 2
    assert "2 fixed in 1 file\n" in done.stderr
    assert NOT_READY not in (fleet / TEMPLATE).read_text()


def test_with_a_base_no_pods_are_restarted_that_the_change_leaves_alone(fleet: Path) -> None:
    git(fleet, "tag", "before")
    (fleet / "README.md").write_text("words\n")
    git(fleet, "add", "--all")
    git(fleet, "commit", "--quiet", "--message", "two")
    done = check(fleet, "--fix", "--base", "before")
    after = (fleet / "agent.yaml").read_text()
    assert LIMIT not in after
    assert NOT_READY in after
    assert (
        "not fixed agent.yaml:20:11: DS305: remove this toleration (it would restart the pods of "
        "DaemonSet logging/agent" in done.stderr
    )
    assert "restarts the pods" not in done.stderr.replace("would restart the pods", "")


def test_with_a_base_the_pods_that_a_change_restarts_are_mended_too(fleet: Path) -> None:
    (fleet / "agent.yaml").write_text(AGENT.replace("agent:1.2.3", "agent:1.2.4"))
    done = check(fleet, "--fix", "--base", "HEAD")
    assert NOT_READY not in (fleet / "agent.yaml").read_text()
    assert "restarts the pods of DaemonSet logging/agent on every node\n" in done.stderr


def test_a_file_that_changes_meanwhile_is_not_written_and_neither_are_the_others(
    tmp_path: Path,
) -> None:
    one, two = PurePosixPath("one.yaml"), PurePosixPath("two.yaml")
    for name in (one, two):
        (tmp_path / name).write_bytes(b"a: 1\n")
    known = {one: b"a: 1\n", two: b"a: 0\n"}
    with pytest.raises(errors.Refused, match="was modified in the meantime"):
        atomic_write.overwrite(tmp_path, "", dict.fromkeys(known, b"a: 2\n"), known)
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [b"a: 1\n"] * 2


@pytest.mark.parametrize(
    "name", ["../outside.yaml", "linked/a.yaml", "link.yaml", "gone.yaml", "folder"]
)
def test_only_plain_files_of_the_tree_are_written(tmp_path: Path, name: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "elsewhere"
    for directory in (root / "folder", outside):
        directory.mkdir(parents=True)
    for file in (tmp_path / "outside.yaml", outside / "a.yaml", root / "good.yaml"):
        file.write_bytes(b"a: 1\n")
    (root / "linked").symlink_to(outside)
    (root / "link.yaml").symlink_to(outside / "a.yaml")
    paths = [PurePosixPath("good.yaml"), PurePosixPath(name)]
    with pytest.raises(errors.Refused, match="no file was changed"):
        atomic_write.overwrite(
            root, "", dict.fromkeys(paths, b"a: 2\n"), dict.fromkeys(paths, b"a: 1\n")
        )
    assert {path.read_bytes() for path in tmp_path.rglob("*.yaml") if not path.is_symlink()} == {
        b"a: 1\n"
    }
    assert not [path for path in tmp_path.rglob(".*") if os.path.lexists(path)]
