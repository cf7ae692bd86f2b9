"""Parses a YAML or JSON file as kubectl does, and finds the position of a value.

Simple files are read line by line (fast_path.py), others with libyaml (libyaml.py), which is
imported at the first such file: a service reads few files and none may need it, and ruamel.yaml
takes 2 MiB and 15 ms. No input raises: errors in a file are a `Finding`.
"""

from __future__ import annotations

from gitops_ds.core.finding import Place
from gitops_ds.core.objects import Path
from gitops_ds.yaml import fast_path, line_places
from gitops_ds.yaml.documents import Document, Parsed


def read(file: str, data: bytes) -> Parsed:
    """All documents of a file. `file` is its name in findings.

    Findings: DS001 (invalid YAML, not UTF-8, limit exceeded; blocking), DS002 (duplicate key;
    blocking, kubectl uses the last one), DS007 (a plain scalar with different values in YAML 1.1,
    YAML 1.2 and kubectl; a warning).
    """
    plain = fast_path.read(data)
    if plain is not None:
        return Parsed(tuple(Document(*document) for document in plain), ())
    from gitops_ds.yaml import libyaml

    return libyaml.read(file, data)


def place(file: str, data: bytes, document: int, path: Path, *, key: bool = False) -> Place:
    """The start of a value (with `key`: of its key); of the nearest parent's key if the path does
    not exist.
    """
    return span(file, data, document, path, key=key)[0]


def span(
    file: str, data: bytes, document: int, path: Path, *, key: bool = False
) -> tuple[Place, Place]:
    """The start of a value or key, and its end (exclusive); without positions if the document does
    not exist.
    """
    if marks := line_places.span(data, document, path, key=key):
        (row, column), (last_row, last_column) = marks
        return Place(file, row + 1, column + 1), Place(file, last_row + 1, last_column + 1)
    from gitops_ds.yaml import libyaml

    return libyaml.span(file, data, document, path, key=key)
