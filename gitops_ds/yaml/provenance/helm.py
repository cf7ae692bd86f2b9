"""The source of each value in the output of helm.

helm writes the template of each document into a comment, `# Source: CHART/templates/x.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from gitops_ds.core.sources.source_tree import Chart, Files, Places, Remote, RenderedChart
from gitops_ds.yaml import parser
from gitops_ds.yaml.documents import Document
from gitops_ds.yaml.provenance import helm_template
from gitops_ds.yaml.provenance.helm_template import ChartValues

_SOURCE = b"# Source: "


def placed(chart: Chart, output: bytes, files: Files) -> RenderedChart:
    """The output, and the sources of the values of each document whose template is in the
    repository.
    """
    by_template: dict[PurePosixPath, list[Document]] = {}
    lines = output.split(b"\n")
    for document in parser.read("", output).documents:
        first = parser.place("", output, document.index, ()).line
        template = file_of(chart, _source(lines, first - 1), files)
        if template is not None:
            by_template.setdefault(template, []).append(document)
    by_document: dict[int, Places] = {}
    values_of: dict[PurePosixPath, Any] = {}
    for template, made in by_template.items():
        text = files[template].decode("utf-8", "replace")
        values = [document.value for document in made]
        several = helm_template.places(
            text, str(template), values, list(layers(chart, files, template, values_of))
        )
        by_document |= {
            document.index: places for document, places in zip(made, several, strict=True)
        }
    return RenderedChart(output, by_document)


def file_of(chart: Chart, named: str, files: Files) -> PurePosixPath | None:
    """The file of the repository with helm's name CHART/PATH; None if it is in an archive or does
    not exist.
    """
    _, _, path = named.partition("/")
    if not path or isinstance(chart.where, Remote) or ".." in path.split("/"):
        return None
    file = chart.where / path
    return file if file in files else None


def layers(
    chart: Chart,
    files: Files,
    template: PurePosixPath | None = None,
    read: dict[PurePosixPath, Any] | None = None,
) -> Iterator[ChartValues]:
    """The values for a template of a subchart (None: of the chart itself), by precedence, the
    highest first; `read` caches those of files.
    """

    def values(file: PurePosixPath) -> Any:
        if file not in content:
            documents = parser.read(str(file), files[file]).documents if file in files else ()
            content[file] = documents[0].value if documents else None
        return content[file]

    content = {} if read is None else read
    sub = _subchart(chart, template)
    below = (sub.name,) if sub else ()
    yield from _below(ChartValues(chart.values, str(chart.file), ("helm", "values")), below)
    for path in reversed(chart.values_files):
        yield from _below(ChartValues(values(path), str(path)), below)
    if not isinstance(chart.where, Remote):
        own = chart.where / "values.yaml"
        yield from _below(ChartValues(values(own), str(own)), below)
    if sub:
        yield ChartValues(values(sub / "values.yaml"), str(sub / "values.yaml"))


def _subchart(chart: Chart, template: PurePosixPath | None) -> PurePosixPath | None:
    """The directory of the template's subchart, None for the chart itself."""
    if template is None or isinstance(chart.where, Remote):
        return None
    parts = template.relative_to(chart.where).parts
    return chart.where / "charts" / parts[1] if parts[0] == "charts" and len(parts) > 2 else None


def _below(layer: ChartValues, steps: tuple[str, ...]) -> Iterator[ChartValues]:
    value = layer.value
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is not None:
        yield ChartValues(value, layer.file, (*layer.path, *steps))


def _source(lines: list[bytes], first: int) -> str:
    """The path in the source comment before the line of that number, from 0."""
    for line in reversed(lines[:first]):
        if line.startswith(_SOURCE):
            return line.removeprefix(_SOURCE).decode("utf-8", "replace").strip()
        if line.strip() and not line.startswith(b"#"):
            break
    return ""
