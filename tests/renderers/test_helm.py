"""Charts in the repository through the real helm: the rendered objects, the place of each value,
and forbidden actions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from gitops_ds.core.finding import Finding
from gitops_ds.core.objects import Path as Way
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.sources.repository_limits import NO_PROGRAMS
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.source.render import bundle, charts
from gitops_ds.source.renderers import expand
from gitops_ds.source.renderers.process import RENDER, Means
from gitops_ds.yaml.provenance import lookup
from tests import renderers

pytestmark = pytest.mark.renderers

LOCAL = "helm:\n  chart: chart\n"
POD: Way = ("spec", "template", "spec")
MAIN: Way = (*POD, "containers", 0)


def means(**changed: object) -> Means:
    return replace(Means(search=str(renderers.programs())), **changed)  # type: ignore[arg-type]


def expanded(files: Mapping[str, str | bytes], using: Means | None = None) -> SourceTree:
    tree = renderers.snapshot(files)
    which = expand.Which(bundle.ignored(tree), bundle.kustomizations(tree), charts.charts(tree))
    return asyncio.run(expand.expand(tree, which, using or means()))


def rendered(
    files: Mapping[str, str | bytes], using: Means | None = None
) -> tuple[Bundle, SourceTree]:
    snapshot = expanded(files, using)
    return bundle.render(snapshot), snapshot


def only(output: Bundle) -> Manifest:
    assert [f for f in output.findings if f.refused] == []
    (manifest,) = output.manifests.values()
    return manifest


def where(files: Mapping[str, str | bytes], path: Way) -> str:
    made, snapshot = rendered(files)
    return str(lookup.locate(only(made).origin, path, lookup.sources(snapshot)))


def refused(
    files: Mapping[str, str | bytes], using: Means | None = None
) -> list[tuple[str, str, str]]:
    made, _ = rendered(files, using)
    return [(f.rule, str(f.place), f.message) for f in made.findings if f.refused]


def refusal(files: Mapping[str, str | bytes], using: Means | None = None) -> tuple[str, str]:
    ((rule, place, message),) = refused(files, using)
    assert rule == "DS801"
    assert "/tmp" not in message
    return place, message


def test_a_chart_becomes_the_agents_objects_with_the_values_of_files_and_of_the_source() -> None:
    source = (
        LOCAL + "  releaseName: node-agent\n  valuesFiles: [one.yaml, ../../two.yaml]\n  values: "
        "{level: debug}\n"
    )
    files = {
        "agents/a/one.yaml": "level: warn\nimage: {tag: one}\n",
        "two.yaml": "image: {tag: two}\n",
    }
    body = only(rendered(renderers.repository(source, {**renderers.chart(), **files}))[0]).body
    (container,) = body["spec"]["template"]["spec"]["containers"]
    assert body["metadata"] == {
        "name": "node-agent",
        "namespace": "node-agents",
        "labels": body["metadata"]["labels"],
    }
    assert body["metadata"]["labels"]["team"] == "platform"
    assert container["image"] == "example.org/agent:two"
    assert container["env"] == [{"name": "LEVEL", "value": "debug"}]


def test_a_shells_variable_in_a_chart_is_a_text() -> None:
    assert only(rendered(renderers.repository(LOCAL))[0]).body["spec"]["template"]["spec"][
        "containers"
    ][0]["args"] == ["--home=${HOME}"]


def test_the_files_of_a_chart_are_not_manifests() -> None:
    made, _ = rendered(renderers.repository(LOCAL))
    assert (made.findings, made.skipped) == ((), ())


def test_a_packaged_chart_is_the_same() -> None:
    archive = renderers.packed(renderers.CHART)
    packed = rendered(
        renderers.repository(
            "helm: {chart: agent-1.2.3.tgz}\n", {"agents/a/agent-1.2.3.tgz": archive}
        )
    )[0]
    assert only(packed).body == only(rendered(renderers.repository(LOCAL))[0]).body


def test_a_parameter_is_bound_to_a_value_of_a_chart() -> None:
    bind = (
        LOCAL + "bind:\n  level: {kind: DaemonSet, path: "
        "'spec.template.spec.containers[agent].env[LEVEL].value'}\n"
    )
    variants = {"agents/a/variants.yaml": "variants: [{name: default, values: {level: trace}}]\n"}
    body = only(rendered(renderers.repository(bind, {**renderers.chart(), **variants}))[0]).body
    assert body["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == "trace"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("spec", "selector"), "agents/a/chart/templates/ds.yaml:10:3"),
        ((*POD, "priorityClassName"), "agents/a/chart/values.yaml:1:11"),
        ((*MAIN, "image"), "agents/a/chart/templates/ds.yaml:23:11"),
        ((*MAIN, "env", 0, "value"), "agents/a/source.yaml:3:19"),
        ((*MAIN, "resources", "requests", "cpu"), "agents/a/chart/values.yaml:9:10"),
        ((*MAIN, "resources", "limits"), "agents/a/chart/values.yaml:7:1"),
        ((*MAIN, "livenessProbe"), "agents/a/chart/templates/ds.yaml:22:9"),
        ((*POD, "tolerations", 0, "operator"), "agents/a/chart/values.yaml:6:15"),
        (("metadata", "labels", "team"), "agents/a/chart/templates/ds.yaml:8:5"),
        (("metadata", "name"), "agents/a/chart/templates/ds.yaml:5:3"),
    ],
)
def test_a_value_is_reported_at_the_value_of_the_chart_or_the_line_of_its_template(
    path: Way, place: str
) -> None:
    assert where(renderers.repository(LOCAL + "  values: {level: debug}\n"), path) == place


def test_a_value_of_an_archive_is_reported_at_the_source() -> None:
    archive = {"agents/a/agent.tgz": renderers.packed(renderers.CHART)}
    assert (
        where(renderers.repository("helm:\n  chart: agent.tgz\n", archive), (*MAIN, "image"))
        == "agents/a/source.yaml:2:3"
    )


def test_a_hook_is_skipped_and_reported_but_not_a_test() -> None:
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {0}, annotations: {{helm.sh/hook: "
        "{0}}}}}\n"
    )
    hooks = {
        f"agents/a/chart/templates/{name}.yaml": job.format(name)
        for name in ("pre-install", "test")
    }
    made, _ = rendered(renderers.repository(LOCAL, {**renderers.chart(), **hooks}))
    assert only(made).body["kind"] == "DaemonSet"
    assert [(f.rule, str(f.place), "pre-install" in f.message) for f in made.findings] == [
        ("DS804", "agents/a/chart/templates/pre-install.yaml:1:1", True)
    ]


@pytest.mark.parametrize(
    ("source", "place", "words"),
    [
        (
            "helm: {chart: ../../../chart}\n",
            "agents/a/source.yaml:1:15",
            "must be inside the repository",
        ),
        ("helm: {chart: /etc}\n", "agents/a/source.yaml:1:15", "must be inside the repository"),
        (
            "helm: {chart: nope}\n",
            "agents/a/source.yaml:1:15",
            "there is no agents/a/nope/Chart.yaml",
        ),
        ("helm: {chart: no.tgz}\n", "agents/a/source.yaml:1:15", "there is no archive"),
        ("helm: {chart: .}\n", "agents/a/source.yaml:1:15", "there is no agents/a/Chart.yaml"),
        (
            "helm: {chart: chart, valuesFiles: [/etc/passwd]}\n",
            "agents/a/source.yaml:1:36",
            "must be inside the repository",
        ),
        (
            "helm: {chart: chart, valuesFiles: [../../../x]}\n",
            "agents/a/source.yaml:1:36",
            "must be inside the repository",
        ),
        (
            "helm: {chart: chart, valuesFiles: ['https://example.org/x']}\n",
            "agents/a/source.yaml:1:36",
            "there is no file",
        ),
        (
            "helm: {chart: https://example.org/x.tgz, version: 1.0.0}\n",
            "agents/a/source.yaml:1:15",
            "into repo:",
        ),
        (
            "helm: {chart: file:///etc, version: 1.0.0}\n",
            "agents/a/source.yaml:1:15",
            "a path of the repository, oci://",
        ),
        (
            "helm: {chart: a, repo: 'https://example.org', version: ^1.0.0}\n",
            "agents/a/source.yaml:1:56",
            "set an exact version",
        ),
        (
            "helm: {chart: a, repo: 'https://u:p@example.org', version: 1.0.0}\n",
            "agents/a/source.yaml:1:24",
            "password",
        ),
        (
            "helm: {chart: a, repo: 'http://example.org', version: 1.0.0}\n",
            "agents/a/source.yaml:1:24",
            "https://",
        ),
        (
            "helm: {chart: 'oci://example.org/a'}\n",
            "agents/a/source.yaml:1:1",
            "set an exact version",
        ),
        (
            "helm: {chart: 'oci://example.org/a', version: 1.0.0}\n",
            "agents/a/source.yaml:1:15",
            "--allow helm,network",
        ),
    ],
)
def test_an_invalid_chart_or_values_file_is_rejected_at_its_place(
    source: str, place: str, words: str
) -> None:
    at, message = refusal(renderers.repository(source))
    assert at == place
    assert words in message


def test_without_a_common_namespace_one_is_required() -> None:
    clusters = {"clusters/one.yaml": "namespace: one\n", "clusters/two.yaml": "namespace: two\n"}
    snapshot = expanded(renderers.repository(LOCAL, {**renderers.chart(), **clusters}))
    assert "helm.namespace" in snapshot.findings[0].message
    named = rendered(renderers.repository(LOCAL + "  namespace: mine\n"))[0]
    assert only(named).body["metadata"]["namespace"] == "mine"


@pytest.mark.parametrize(
    ("template", "place", "words"),
    [
        ("a: {{ .Values.x.y.z }}\n", "agents/a/chart/templates/x.yaml:1:14", "nil pointer"),
        ('{{ fail "say x" }}\n', "agents/a/chart/templates/x.yaml:1:4", "say x"),
        ("a: 1\nb: {{ nope }}\n", "agents/a/chart/templates/x.yaml:2:1", '"nope" not defined'),
        ("a: [\n", "agents/a/chart/templates/x.yaml", "is invalid YAML"),
        (
            'a: 1\nb: {{ include "agent.labels" . }}{{ .Values.no.no }}\n',
            "agents/a/chart/templates/x.yaml:2:44",
            "nil",
        ),
    ],
)
def test_an_error_of_helm_in_a_template_is_reported_at_its_line(
    template: str, place: str, words: str
) -> None:
    at, message = refusal(
        renderers.repository(LOCAL, renderers.chart(templates__x_DOT_yaml=template))
    )
    assert at == place
    assert words in message


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("  values: {level: 7}\n", [("agents/a/source.yaml:3:19", "level")]),
        ("", [("agents/a/chart/values.yaml:2:8", "level")]),
    ],
)
def test_a_violation_of_the_values_schema_is_reported_at_the_value(
    values: str, expected: list[tuple[str, str]]
) -> None:
    schema = '{"properties": {"level": {"type": "string", "enum": ["debug"]}}}'
    reported = refused(
        renderers.repository(LOCAL + values, renderers.chart(values_DOT_schema_DOT_json=schema))
    )
    assert {place for _, place, _ in reported} == {place for place, _ in expected}
    assert all(
        "level violates the chart's values.schema.json" in message for _, _, message in reported
    )


def test_a_missing_dependency_is_reported_at_the_chart() -> None:
    text = (
        renderers.CHART["Chart.yaml"]
        + "dependencies: [{name: common, version: 1.0.0, repository: 'https://example.org'}]\n"
    )
    place, message = refusal(renderers.repository(LOCAL, renderers.chart(Chart_DOT_yaml=text)))
    assert place == "agents/a/chart/Chart.yaml:5:1"
    assert "common" in message


def test_values_that_are_not_yaml_are_reported_at_their_file() -> None:
    files = {**renderers.chart(), "agents/a/v.yaml": "a: b\nc: [\n"}
    place, _ = refusal(renderers.repository(LOCAL + "  valuesFiles: [v.yaml]\n", files))
    assert place.startswith("agents/a/v.yaml")


def test_nothing_runs_unless_it_is_allowed() -> None:
    place, message = refusal(renderers.repository(LOCAL), means(allowed=NO_PROGRAMS))
    assert place == "agents/a/source.yaml:2:10"
    assert "--allow helm" in message


def test_without_helm_the_finding_names_what_to_install(tmp_path: Path) -> None:
    assert (
        "helm is not installed"
        in refusal(renderers.repository(LOCAL), means(search=str(tmp_path)))[1]
    )


def test_a_chart_that_does_not_end_is_ended() -> None:
    loop = (
        "{{ range $a := until 30000 }}{{ range $b := until 30000 }}{{ range until 30000 }}{{ end "
        "}}{{ end }}{{ end }}\n"
    )
    files = renderers.repository(LOCAL, renderers.chart(templates__x_DOT_yaml=loop))
    assert (
        "did not finish within 0.5 s"
        in refusal(files, means(limits=replace(RENDER, seconds=0.5)))[1]
    )


def test_a_chart_that_writes_without_end_is_refused() -> None:
    bomb = 'a: {{ range until 20000 }}{{ repeat 1000 "x" }}{{ end }}\n'
    files = renderers.repository(LOCAL, renderers.chart(templates__x_DOT_yaml=bomb))
    assert "writes more than" in refusal(files)[1]


def test_a_chart_that_uses_too_much_memory_is_rejected() -> None:
    hungry = (
        '{{ $x := repeat 2000000000 "x" }}{{ $y := repeat 2000000000 "y" }}{{ $z := cat $x $y $x '
        "}}a: {{ len $z }}\n"
    )
    files = renderers.repository(LOCAL, renderers.chart(templates__x_DOT_yaml=hungry))
    assert "memory" in refusal(files)[1]


@pytest.mark.parametrize("option", ["--post-renderer=/bin/false", "--debug", "-f/etc/passwd"])
def test_a_name_that_looks_like_an_option_is_not_used_as_one(option: str) -> None:
    place, message = refusal(renderers.repository(LOCAL + f"  releaseName: {option}\n"))
    assert place == "agents/a/source.yaml:2:10"
    assert "release name" in message


def test_a_chart_sees_neither_our_environment_nor_files_beside_it() -> None:
    read = '{{ .Files.Get "../../../gitops-ds.yaml" }}{{ .Files.Get "/etc/passwd" }}'
    host = '{{ getHostByName "localhost" }}'
    template = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{read: '{read}', host: "
        f"'{host}'}}\n"
    )
    made, _ = rendered(renderers.repository(LOCAL, renderers.chart(templates__x_DOT_yaml=template)))
    (data,) = [m.body["data"] for m in made.manifests.values() if m.key.kind == "ConfigMap"]
    assert data == {"read": "", "host": ""}
    named = renderers.repository(
        LOCAL, renderers.chart(templates__x_DOT_yaml='a: {{ env "PATH" }}\n')
    )
    assert '"env" not defined' in refusal(named)[1]


def test_a_second_render_of_the_same_runs_nothing(tmp_path: Path) -> None:
    once = rendered(renderers.repository(LOCAL), means(cache=tmp_path / "kept"))[0]
    # Where no program could write its copy, only what was kept can answer.
    own = tmp_path / "bin"
    own.mkdir()
    (own / "helm").symlink_to(renderers.programs() / "helm")
    again = rendered(
        renderers.repository(LOCAL),
        means(cache=tmp_path / "kept", search=str(own), limits=replace(RENDER, seconds=0)),
    )
    assert only(again[0]).body == only(once).body
    changed = renderers.repository(LOCAL + "  values: {level: debug}\n")
    assert (
        "did not finish"
        in refusal(changed, means(cache=tmp_path / "kept", limits=replace(RENDER, seconds=0)))[1]
    )


def test_a_symbolic_link_out_of_the_tree_is_never_followed(tmp_path: Path) -> None:
    from gitops_ds.source.git import worktree

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.yaml").write_text("a: secret\n")
    root = tmp_path / "tree"
    for name, text in renderers.repository(LOCAL + "  valuesFiles: [values-link.yaml]\n").items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    (root / "agents/a/chart/templates/link.yaml").symlink_to(outside / "secret.yaml")
    (root / "agents/a/values-link.yaml").symlink_to(outside / "secret.yaml")
    (root / "agents/a/chart/crds").symlink_to(outside)
    tree = worktree.snapshot(root)
    which = expand.Which(charts=charts.charts(tree))
    made = asyncio.run(expand.expand(tree, which, means()))
    blocking: list[Finding] = [f for f in made.findings if f.refused]
    assert [(f.rule, str(f.place)) for f in blocking] == [
        ("SRC001", "agents/a/chart/templates/link.yaml"),
        ("SRC001", "agents/a/values-link.yaml"),
        ("DS801", "agents/a/source.yaml:3:17"),
    ]
    assert PurePosixPath("agents/a/chart/templates/link.yaml") not in tree.files
    assert made.charts == {}


def test_the_environment_of_helm_is_empty_but_for_its_own_places() -> None:
    from gitops_ds.source.renderers import helm

    own = helm._environment(Path("/nowhere"))
    assert {value for name, value in own.items() if not value.startswith("/nowhere/empty")} == {
        "http://127.0.0.1:9",
        "none",
        "C",
    }
    assert not set(own) & {name for name in os.environ if "TOKEN" in name or "SECRET" in name}


def test_an_agent_that_may_not_be_built_is_not_an_unknown_agent() -> None:
    clusters = {
        "clusters/one.yaml": "agents: {a: {}, b: {}}\n",
        "agents/b/kustomization.yaml": "resources: [c.yaml]\n",
    }
    config = {"agents/b/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"}
    files = renderers.repository(LOCAL, {**renderers.chart(), **clusters, **config})
    assert [place for _, place, _ in refused(files, means(allowed=NO_PROGRAMS))] == [
        "agents/a/source.yaml:2:10",
        "agents/b/kustomization.yaml",
    ]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "reference", ["file://{file}", "{file}", "file://{file}#/x", "file:///proc/self/environ"]
)
def test_a_schema_reads_no_file_outside_of_its_chart(
    tmp_path: Path, reference: str, packed: bool
) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"pattern": "[hunter2", "x": {"pattern": "[hunter2"}}')
    schema = f'{{"properties": {{"level": {{"$ref": "{reference.format(file=secret)}"}}}}}}'
    files = renderers.chart(values_DOT_schema_DOT_json=schema)
    source = LOCAL
    if packed:
        archive = renderers.packed({**renderers.CHART, "values.schema.json": schema})
        files, source = {"agents/a/agent-1.2.3.tgz": archive}, "helm: {chart: agent-1.2.3.tgz}\n"
    ((rule, _, message),) = refused(renderers.repository(source, files))
    assert rule == "DS801"
    assert "permission denied" in message
    assert "hunter2" not in message
