"""The changed files at some places of a repository; a place is a file or a folder. The files are
indexed once, because a commit that adds hundreds of agents is compared with the places of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

FilesByPlace = Mapping[str, Sequence[str]]


def by_place(files: Iterable[str]) -> FilesByPlace:
    """The files by their own name and by each folder above them."""
    places = dict[str, list[str]]()
    for file in files:
        end = len(file)
        while end > 0:
            places.setdefault(file[:end], []).append(file)
            end = file.rfind("/", 0, end)
    return places


def files_at(index: FilesByPlace, places: Iterable[str], path: str) -> Set[str]:
    """Those of the files at one of the places, which are below the followed folder `path`."""
    prefix = f"{path.strip('/')}/" if path.strip("/.") else ""
    return {file for place in places for file in index.get(prefix + place, ())}
