"""Repositories that attack their reader, generated deterministically. Each name states the
attack.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.gitservers import Upstream
from tests.plan.world import daemonset

SEED = 20
Files = dict[str, str | bytes]


@dataclass(frozen=True, slots=True)
class Hostile:
    """One repository: `make` commits it into an empty one."""

    name: str
    make: Callable[[Upstream], object]


def _files(make: Callable[[], Files]) -> Callable[[Upstream], object]:
    return lambda upstream: upstream.commit(make())


def _agent(schema: dict[str, Any], **more: str | bytes) -> Files:
    files: Files = {
        "gitops-ds.yaml": "version: v1\n",
        "agents/a/daemonset.json": json.dumps(daemonset("a", namespace="default")),
        "agents/a/params.schema.json": json.dumps(schema),
    }
    return {**files, **more}


def _endless_pattern() -> Files:
    return _agent({"properties": {"x": {"default": "a" * 48 + "!", "pattern": "^(a+)+$"}}})


def _doubling(word: str) -> Callable[[], Files]:
    def make() -> Files:
        doubled = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
        return _agent(
            {
                "$defs": {**doubled, "d40": {"type": "null"}},
                "properties": {"x": {"default": 1, "$ref": "#/$defs/d0"}},
            }
        )

    return make


def _many_schemas() -> Files:
    files = _endless_pattern()
    for number in range(200):
        for name in ("daemonset.json", "params.schema.json"):
            files[f"agents/a{number}/{name}"] = files[f"agents/a/{name}"]
    return files


def _circles() -> Files:
    schema = {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "properties": {"x": {"$ref": "#/$defs/a", "default": 1}},
    }
    return _agent(schema)


def _alias_bomb() -> Files:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)
    ]
    return {"bomb.yaml": "\n".join(lines), "gitops-ds.yaml": "\n".join(lines)}


def _deep() -> Files:
    deep = "[" * 200_000
    return {
        "deep.yaml": deep,
        "deep.json": deep + "]" * 200_000,
        "gitops-ds.yaml": "a: " + "{a: " * 100_000,
    }


def _many_objects() -> Files:
    one = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a%d, namespace: default}\ndata: {a: b}\n"
    )
    return {
        f"{file}.yaml": "---\n".join(
            one % number for number in range(file * 45_000, file * 45_000 + 45_000)
        )
        for file in range(7)
    }


def _huge_values() -> Files:
    body = daemonset("a", namespace="default")
    body["metadata"]["annotations"] = {"a": "x" * 3_000_000}
    numbers = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: n, namespace: default}\ndata: {a: %s, "
        "b: %s, c: 1e%s}\n"
    )
    return {
        "text.json": json.dumps(body),
        "numbers.yaml": numbers % ("9" * 1_000_000, "0x" + "f" * 900_000, "9" * 100_000),
    }


def _zeros() -> Files:
    return {f"{number}.bin": bytes(4_000_000) + str(number).encode() for number in range(60)}


def _zeros_in_an_agent() -> Files:
    more = {
        f"agents/a/config/{number}": bytes(4_000_000) + str(number).encode() for number in range(60)
    }
    return _agent({}, **more)


def _custom_definition() -> Files:
    properties: dict[str, Any] = {"type": "string", "pattern": "^(a+)+$"}
    for _ in range(60):
        properties = {"type": "object", "properties": {"a": properties}}
    wide = {
        f"field{number}": {"type": "string", "pattern": "(x+x+)+y", "description": "x" * 50}
        for number in range(15_000)
    }
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": properties, **wide}}
    }
    names = {"kind": "Bomb", "plural": "bombs", "singular": "bomb"}
    spec = {"group": "example.com", "names": names, "scope": "Cluster", "versions": [version]}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "bombs.example.com"},
    }
    return {
        "definition.json": json.dumps({**definition, "spec": spec}),
        "bomb.json": json.dumps(_bomb()),
    }


def _bomb() -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Bomb",
        "metadata": {"name": "a"},
        "spec": {"a": "a" * 50 + "!"},
    }


def _odd_names() -> Files:
    chance = random.Random(SEED)
    odd = [
        "\x1b]0;owned\x07",
        "\u202egnp",
        "::error::x",
        "a\nb",
        "$(id)",
        "`id`",
        "x" * 200,
        "ü" * 60,
        "%2e%2e",
        "-rf",
        "C:\\x",
    ]
    files: Files = {}
    for number in range(400):
        name = "/".join(chance.choice(odd) for _ in range(chance.randint(1, 4)))
        files[f"{name}{number}.yaml"] = "kind: [\n"
    return files


def _globs() -> Files:
    star = "/".join(["**", "*a*a*a*a*a*a*b"] * 60)
    settings = {"version": "v1", "manifests": [star] * 200, "ignore": [star] * 200}
    files: Files = {f"{'/'.join(['a' * 60] * 20)}/{number}.yaml": "{}" for number in range(100)}
    return {**files, "gitops-ds.yaml": json.dumps(settings), ".gitopsdsignore": f"{star}\n" * 2_000}


def _kustomize_urls() -> Files:
    where = "http://127.0.0.1:9/x"
    generator = {
        "apiVersion": "builtin",
        "kind": "ConfigMapGenerator",
        "metadata": {"name": "a"},
        "name": "a",
        "files": [f"body={where}"],
    }
    kustomization = {"generators": ["gen.yaml"], "resources": ["a.yaml"]}
    remote = {"resources": [where, "github.com/kubernetes-sigs/kustomize//examples/helloWorld"]}
    return {
        "k/kustomization.yaml": json.dumps(kustomization),
        "k/gen.yaml": json.dumps(generator),
        "k/a.yaml": json.dumps(daemonset("a", namespace="default")),
        "r/kustomization.yaml": json.dumps(remote),
    }


def _kustomize_circle() -> Files:
    files: Files = {
        f"k{n}/kustomization.yaml": json.dumps({"resources": [f"../k{(n + 1) % 50}"]})
        for n in range(50)
    }
    for level in range(24):
        files[f"d{level}/kustomization.yaml"] = json.dumps(
            {
                "resources": [f"../d{level + 1}"],
                "components": [f"../d{level + 1}"],
                "namePrefix": "x",
            }
        )
    return {**files, "d24/kustomization.yaml": "configMapGenerator: [{name: a, literals: [a=b]}]\n"}


def _chart(template: str) -> Callable[[], Files]:
    def make() -> Files:
        return {
            "gitops-ds.yaml": "version: v1\n",
            "agents/a/source.yaml": "helm: {chart: chart, namespace: default}\n",
            "agents/a/chart/Chart.yaml": "apiVersion: v2\nname: a\nversion: 1.0.0\n",
            "agents/a/chart/templates/a.yaml": template,
        }

    return make


_LOOPS = (
    '{{- define "a" }}{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}{{ end '
    '}}x: {{ include "a" . | len }}\n'
)
_ALLOCATES = (
    '{{- $a := "x" }}{{ range until 60 }}{{ $a = printf "%s%s" $a $a }}{{ end }}x: {{ $a | len }}\n'
)


def _links(upstream: Upstream) -> None:
    """40,000 links: in circles, to themselves, up, to everything."""
    target = [b"..", b"a0", b"/", b"../../../../etc", b"loop", b"a/" * 1000]
    blobs = [upstream.git("hash-object", "-w", "--stdin", input=text) for text in target]
    rows = "".join(
        f"120000 blob {blobs[number % len(blobs)]}\ta{number}\n" for number in range(40_000)
    )
    _head(upstream, upstream.git("mktree", input=rows.encode()))


def _paths(upstream: Upstream) -> None:
    """A million paths of one small file, from four trees."""
    blob = upstream.git("hash-object", "-w", "--stdin", input=b"{}")
    tree = upstream.git(
        "mktree", input="".join(f"100644 blob {blob}\t{n}.yaml\n" for n in range(32)).encode()
    )
    for _ in range(3):
        tree = upstream.git(
            "mktree", input="".join(f"040000 tree {tree}\t{n}\n" for n in range(32)).encode()
        )
    _head(upstream, tree)


def _submodules(upstream: Upstream) -> None:
    rows = "".join(f"160000 commit {number:040x}\tsub{number}\n" for number in range(1, 5_000))
    modules = b'[submodule "a"]\n\tpath = sub1\n\turl = ext::sh -c id\n'
    blob = upstream.git("hash-object", "-w", "--stdin", input=modules)
    _head(
        upstream, upstream.git("mktree", input=f"100644 blob {blob}\t.gitmodules\n{rows}".encode())
    )


def _large_pack(upstream: Upstream) -> None:
    """300 MiB that fit into some hundred kilobytes."""
    rows = ""
    for number in range(3):
        body = bytes(100 << 20) + bytes([number])
        blob = upstream.git("hash-object", "-w", "--stdin", input=body)
        rows += f"100644 blob {blob}\t{number}.yaml\n"
    _head(upstream, upstream.git("mktree", input=rows.encode()))


def _refs(upstream: Upstream) -> None:
    """A million branches, as if they had been pushed."""
    commit = upstream.commit({"gitops-ds.yaml": "version: v1\n"})
    rows = "".join(f"{commit} refs/heads/change-{n:08d}\n" for n in range(1_000_000))
    head = "# pack-refs with: peeled fully-peeled sorted \n"
    (upstream.path / "packed-refs").write_text(head + rows)


def _long_message(upstream: Upstream) -> None:
    """A text of 60 MiB takes four times as much, for one character."""
    message = "\N{GRINNING FACE}" + "x" * (60 << 20)
    tree = upstream.git("mktree", input=b"")
    commit = upstream.git("commit-tree", tree, "-F", "-", input=message.encode())
    upstream.git("update-ref", "refs/heads/main", commit)


def _head(upstream: Upstream, tree: str) -> None:
    upstream.git("update-ref", "refs/heads/main", upstream.git("commit-tree", tree, "-m", "a tree"))


def _not_text() -> Files:
    noise = random.Random(SEED).randbytes(500_000)
    return {
        "noise.yaml": noise,
        "compressed.json": zlib.compress(noise),
        "gitops-ds.yaml": noise,
        "kustomization.yaml": noise,
    }


def every() -> Iterator[Hostile]:
    """All of them."""
    yield Hostile("schema-pattern-never-ends", _files(_endless_pattern))
    yield Hostile("schema-allof-doubles", _files(_doubling("allOf")))
    yield Hostile("schema-anyof-doubles", _files(_doubling("anyOf")))
    yield Hostile("schema-two-hundred-of-them", _files(_many_schemas))
    yield Hostile("schema-references-in-circles", _files(_circles))
    yield Hostile("yaml-alias-bomb", _files(_alias_bomb))
    yield Hostile("yaml-deep", _files(_deep))
    yield Hostile("yaml-many-objects", _files(_many_objects))
    yield Hostile("huge-values", _files(_huge_values))
    yield Hostile("zeros", _files(_zeros))
    yield Hostile("zeros-in-an-agent", _files(_zeros_in_an_agent))
    yield Hostile("custom-definition", _files(_custom_definition))
    yield Hostile("odd-names", _files(_odd_names))
    yield Hostile("globs", _files(_globs))
    yield Hostile("kustomize-urls", _files(_kustomize_urls))
    yield Hostile("kustomize-in-circles", _files(_kustomize_circle))
    yield Hostile("helm-loops", _files(_chart(_LOOPS)))
    yield Hostile("helm-allocates", _files(_chart(_ALLOCATES)))
    yield Hostile("symlinks", _links)
    yield Hostile("a-million-paths", _paths)
    yield Hostile("submodules", _submodules)
    yield Hostile("large-pack", _large_pack)
    yield Hostile("a-million-refs", _refs)
    yield Hostile("a-long-message", _long_message)
    yield Hostile("not-text", _files(_not_text))
