"""Hooks of mkdocs.yml: pages from files outside of docs/, links to all files of the project, and
the commands in the navigation.

The Markdown files link to each other by relative paths, which a forge follows as well. A link to a
file without a page leads to that file on the forge.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FORGE = "https://github.com/gitops-ds/gitops-ds"
PROJECT = ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "GOVERNANCE", "SECURITY")
RULES = "gitops_ds/checks/pages"
COMMANDS = "reference/commands"
_FENCE = re.compile(r"^( *)(```+).*?^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=\))")


@cache
def sources() -> dict[str, str]:
    """The page of each Markdown file outside of docs/, by the path of the file."""
    rules = sorted((ROOT / RULES).glob("DS*.md"))
    return {
        **{f"{name}.md": f"project/{name}.md" for name in PROJECT},
        **{f"{RULES}/{rule.name}": f"reference/rules/{rule.name}" for rule in rules},
    }


def on_config(config: Any) -> Any:
    """Puts the pages of the commands in the place of their folder in the navigation."""
    config["nav"] = filled(config["nav"])
    return config


def filled(nav: Any) -> Any:
    """The navigation with the pages of the folder COMMANDS."""
    match nav:
        case list():
            return [
                one for item in nav for one in (commands() if item == COMMANDS else [filled(item)])
            ]
        case dict():
            return {title: filled(items) for title, items in nav.items()}
        case _:
            return nav


def commands() -> list[dict[str, str]]:
    """The page of each command, by its name."""
    pages = sorted((ROOT / "docs" / COMMANDS).glob("*.md"))
    return [{page.stem: f"{COMMANDS}/{page.name}"} for page in pages]


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages from outside of docs/."""
    for path, page in sources().items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """The page with its links mapped to pages of the site, or to files on the forge."""
    uri = page.file.src_uri
    if page.file.generated_by:
        page.edit_url = None
        # a search lists guides and the reference before the pages of single rules and the changelog
        page.meta["search"] = {"boost": 0.3}
    origins = {target: path for path, target in sources().items()}
    origin = origins.get(uri, f"docs/{uri}")
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [relinked(markdown[end : fence.start()], origin, uri), fence.group()]
        end = fence.end()
    return "".join([*parts, relinked(markdown[end:], origin, uri)])


def relinked(text: str, origin: str, uri: str) -> str:
    """The text of the file `origin`, whose page is `uri`, with mapped links."""
    return _LINK.sub(lambda link: target(link["path"], link["anchor"] or "", origin, uri), text)


def target(path: str, anchor: str, origin: str, uri: str) -> str:
    """One mapped link. A path that does not exist is unchanged, and mkdocs reports it."""
    blob = f"{FORGE}/blob/main/"
    if path.startswith(blob):
        file = path.removeprefix(blob)
    elif not path or ":" in path:
        return path + anchor
    else:
        file = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    page = sources().get(file, file.removeprefix("docs/") if file.startswith("docs/") else "")
    if file == "README.md" and not anchor:
        page = "index.md"
    if page and (ROOT / file).is_file():
        return posixpath.relpath(page, posixpath.dirname(uri) or ".") + anchor
    if (ROOT / file).exists():
        return f"{FORGE}/{'tree' if (ROOT / file).is_dir() else 'blob'}/main/{file}{anchor}"
    return path + anchor
