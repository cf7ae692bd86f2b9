"""Translates the errors of helm and kustomize into findings at the line of the repository. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.objects import Path
from gitops_ds.core.sources.source_tree import Chart, Files, Remote
from gitops_ds.source.render.kustomization import Kustomization
from gitops_ds.source.rules import NOT_RENDERED
from gitops_ds.yaml import parser
from gitops_ds.yaml.provenance import helm

_MOST = 500
_SEVERAL = 10

# A file of a chart with a line, in the format of Go's templates: CHART/templates/x.yaml:12:20
_AT_LINE = re.compile(r"([\w.+-]+(?:/[\w.+-]+)+):(\d+)(?::(\d+))?")
_NO_YAML = re.compile(r"YAML parse error on ([^\s:]+): (.*)", re.DOTALL)
_MISSING = re.compile(r"missing in charts/ directory: (.*)")
_SCHEMA = "values don't meet the specifications of the schema"
# `- at '/image/tag': got number, want string` since 3.18, `- image.tag: Invalid type. …` before.
_SCHEMA_LINE = re.compile(
    r"^\s*- (?:at '(?P<pointer>/[^']*|)'|(?P<dotted>[\w.()-]+)): (?P<words>.*)$"
)
_IN_FILE = re.compile(
    r"(?:failed to parse|cannot (?:load|unmarshal)|error (?:parsing|reading)) "
    r"([^\s:]+)[^\n]*?(?:line (\d+))?: ([^\n]*)$"
)
_AT_TEMPLATE = re.compile(r"^(?:execution|parse) error at \([^)]*\): ")
_DEEPEST = re.compile(r".* at <(.*?)>: (.*)", re.DOTALL)


def findings(stderr: str, chart: Chart, files: Files, root: str) -> tuple[Finding, ...]:
    """Blocking findings from helm's stderr; `root` is the directory of our copy."""
    words = _in_repository(_error(stderr), chart, root)
    if _SCHEMA in words and (of_schema := list(_of_schema(words, chart, files))):
        return tuple(of_schema[:_SEVERAL])
    if made := _NO_YAML.search(words):
        file = helm.file_of(chart, made[1], files)
        message = (
            f"the output of {made[1]} is invalid YAML: {_plain(made[2])}; "
            "helm template --debug shows it"
        )
        return (
            NOT_RENDERED.refusal(message, Place(str(file)) if file else _at_chart(chart, files)),
        )
    if missing := _MISSING.search(words):
        message = (
            f"the chart depends on {missing[1]}, and dependencies are not fetched: run helm "
            "dependency build, and commit charts/"
        )
        return (NOT_RENDERED.refusal(message, _dependencies(chart, files)),)
    place = _named_line(words, chart, files) or _at_chart(chart, files)
    deepest = _DEEPEST.fullmatch(words)
    words = f"at {deepest[1]}: {deepest[2]}" if deepest else _AT_TEMPLATE.sub("", words)
    return (NOT_RENDERED.refusal(_plain(f"helm can't render the chart: {words}"), place),)


def helm_sentence(stderr: str, root: str) -> str:
    """helm's last error without the paths of our copy; at most 500 characters."""
    return (
        _plain(_error(stderr).replace(f"{root}/", "").replace(root, "."))
        or "without an error message"
    )


def _error(stderr: str) -> str:
    """The text after the last `Error: ` at the start of a line; all of it without one."""
    parts = re.split(r"^Error: ", stderr, flags=re.MULTILINE)
    return parts[-1].replace("Use --debug flag to render out invalid YAML", "").strip()


def _plain(words: str) -> str:
    return "".join(c for c in " ".join(words.split()) if c.isprintable())[:_MOST]


def _in_repository(message_text: str, chart: Chart, root: str) -> str:
    """The message with the repository's paths instead of those of the copy."""
    names = [*map(str, chart.values_files), f"{chart.file}"]
    for number, name in enumerate(names):
        message_text = message_text.replace(f"{root}/values/{number}", name)
    where = chart.where.name if isinstance(chart.where, Remote) else str(chart.where)
    folder = str(PurePosixPath(where).parent) if where.endswith(".tgz") else where
    return (
        message_text.replace(f"{root}/chart.tgz", where)
        .replace(f"{root}/chart", folder)
        .replace(f"{root}/", "")
        .replace(root, ".")
    )


def _of_schema(message_text: str, chart: Chart, files: Files) -> Iterator[Finding]:
    """One finding per value that violates the chart's values.schema.json."""
    for line in message_text.splitlines():
        if match := _SCHEMA_LINE.match(line):
            if match["dotted"] is not None:
                steps = [] if match["dotted"] == "(root)" else match["dotted"].split(".")
            else:
                steps = [
                    part.replace("~1", "/").replace("~0", "~")
                    for part in match["pointer"].split("/")[1:]
                ]
            name = ".".join(steps) or "values"
            message = f"{name} violates the chart's values.schema.json: {match['words']}"
            yield NOT_RENDERED.refusal(_plain(message), _of_value(steps, chart, files))


def _of_value(steps: list[str], chart: Chart, files: Files) -> Place:
    """The place of the value; if it is not set, of `values` or `chart` in source.yaml."""
    for layer in helm.layers(chart, files):
        value, path = layer.value, layer.path
        for step in steps:
            at: str | int = int(step) if isinstance(value, list) and step.isdigit() else step
            if isinstance(value, Mapping) and at in value:
                value = value[str(at)]
            elif isinstance(value, list) and isinstance(at, int) and at < len(value):
                value = value[at]
            else:
                break
            path = (*path, at)
        else:
            if steps and PurePosixPath(layer.file) in files:
                return parser.place(layer.file, files[PurePosixPath(layer.file)], 0, path)
    return _at_source(
        chart, files, ("helm", "values") if chart.values else ("helm", "chart"), key=True
    )


def _named_line(message_text: str, chart: Chart, files: Files) -> Place | None:
    """The innermost place in the message within a file of the repository."""
    place = None
    for name, line, column in _AT_LINE.findall(message_text):
        file = helm.file_of(chart, name, files)
        if file is not None:
            # Go counts columns from 0.
            place = Place(str(file), int(line), int(column) + 1 if column else 1)
    if (
        place is None
        and (named := _IN_FILE.search(message_text))
        and PurePosixPath(named[1]) in files
    ):
        line = int(named[2] or 0)
        return Place(named[1], line, 1 if line else 0)
    return place


def _dependencies(chart: Chart, files: Files) -> Place:
    if not isinstance(chart.where, Remote) and (file := chart.where / "Chart.yaml") in files:
        return parser.place(str(file), files[file], 0, ("dependencies",), key=True)
    return _at_chart(chart, files)


def _at_chart(chart: Chart, files: Files) -> Place:
    return _at_source(chart, files, ("helm", "chart"))


def _at_source(chart: Chart, files: Files, path: Path, *, key: bool = False) -> Place:
    return (
        parser.place(str(chart.file), files[chart.file], 0, path, key=key)
        if chart.file in files
        else Place(str(chart.file))
    )


_KLOG = re.compile(r'^E\d{4} .*?\] "command failed" err="(?P<words>.*)"$', re.DOTALL)
_FIELD = re.compile(r'unknown field "([^"]+)"')
# Files in its messages: from 'a.yaml', in File: a.yaml, path: a.yaml
_FILE = re.compile(r"""(?:'|"|(?:File|path): ?)([\w./-]+\.(?:ya?ml|json))\b""")
_LINE = re.compile(r"yaml: line (\d+)")


def kustomize_sentence(stderr: str, root: str) -> str:
    """kustomize's last error without the paths of our copy `root` and kubectl's log prefix; at
    most 500 characters.
    """
    lines = [
        line
        for line in stderr.strip().splitlines()
        if line.strip() and not line.startswith("# Warning")
    ]
    text = " ".join(lines[-3:]) if lines else "without an error message"
    if klog := _KLOG.match(text):
        text = klog["words"].replace('\\"', '"').replace("\\n", " ")
    text = (
        text.removeprefix("Error: ")
        .replace(f"{root}/", "")
        .replace(root, ".")
        .replace(posixpath.dirname(root), ".")
    )
    return "".join(c for c in text if c.isprintable())[:500]


def kustomize_place(message: str, of: Kustomization, files: Files) -> Place:
    """The key, file or entry in the message; the kustomization's file without one."""
    own = str(of.file)
    if (field := _FIELD.search(message)) and "ustomization" in message:
        return parser.place(own, files[of.file], 0, (field[1],), key=True)
    for name in reversed(_FILE.findall(message)):
        file = PurePosixPath(posixpath.normpath(posixpath.join(str(of.file.parent), name)))
        file = file if file in files else PurePosixPath(name)
        if file in files and file != of.file:
            line = _LINE.search(message)
            if line:
                return Place(str(file), int(line[1]), 1)
            entry = next(
                (named.path for named in of.names if posixpath.basename(named.text) == file.name),
                None,
            )
            return parser.place(own, files[of.file], 0, entry) if entry else Place(str(file))
    return Place(own)
