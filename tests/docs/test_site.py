"""The site of the documentation: it builds, has every page, and every link and anchor is right."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect

from tests.docs.pages import ROOT
from tests.http_servers import ServerThread
from tests.page.conftest import Looker, browser, looker

__all__ = ["browser", "looker"]  # fixtures
pytestmark = pytest.mark.xdist_group("site")
CONFIG = ROOT / "mkdocs.yml"
SITE = runpy.run_path(str(ROOT / "scripts/site.py"))
FORGE = re.compile(rf"{re.escape(SITE['FORGE'])}/(?:blob|tree|edit)/main/([^#]*)(?:#.*)?")


class Quiet(SimpleHTTPRequestHandler):
    """A server of files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class Page(HTMLParser):
    """The anchors, links and loaded files of a page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "prev", "next", "edit"):
            self.loaded.append(values["href"])
        elif "src" in values:
            self.loaded.append(values["src"])


def build(config: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", str(config), "-d", str(directory)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    done = build(CONFIG, directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def pages(site: Path) -> Mapping[Path, Page]:
    found = {}
    for file in site.rglob("*.html"):
        found[file] = Page()
        found[file].feed(file.read_text("utf-8"))
    return found


def navigation() -> list[str]:
    """The pages of the navigation, in order."""
    text = CONFIG.read_text("utf-8").partition("\nnav:\n")[2]
    commands = [page for one in SITE["commands"]() for page in one.values()]
    return re.findall(r"([\w./-]+\.md)$", text, re.MULTILINE) + commands


def test_each_page_is_in_the_navigation_once() -> None:
    docs = ROOT / "docs"
    expected = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    expected |= {page for page in SITE["sources"]().values() if "/rules/" not in page}
    assert sorted(navigation()) == sorted(expected), "change `nav` of mkdocs.yml"


@pytest.mark.slow
def test_each_link_and_each_anchor_is_right(site: Path, pages: Mapping[Path, Page]) -> None:
    assert len(pages) > 100
    wrong = [
        f"{file.relative_to(site)}: {link}"
        for file, page in pages.items()
        if file.name != "404.html"
        for link in page.links
        if not is_right(link, file, pages)
    ]
    assert not wrong


def is_right(link: str, file: Path, pages: Mapping[Path, Page]) -> bool:
    if named := FORGE.fullmatch(link):
        return (ROOT / unquote(named[1])).exists()
    if re.match("https?:|mailto:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (file.parent / path).resolve() if path else file
    target = target / "index.html" if target.is_dir() else target
    return target.exists() and (not anchor or unquote(anchor) in pages[target].anchors)


@pytest.mark.slow
def test_no_page_loads_a_file_of_another_host(pages: Mapping[Path, Page]) -> None:
    for file, page in pages.items():
        assert page.loaded
        assert not [url for url in page.loaded if re.match("(https?:)?//", url)], file
        assert "data-md-component=source" not in file.read_text().replace('"', "")


@pytest.mark.slow
def test_the_search_finds_every_page(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {
        page.removesuffix("index.md") if page.endswith("index.md") else f"{page[:-3]}/"
        for page in navigation()
    } <= found


@pytest.mark.slow
@pytest.mark.browser
def test_the_search_works_in_a_browser_without_another_host(site: Path, looker: Looker) -> None:
    """`looker` fails for a request to another host, and for a complaint of the browser."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    with ServerThread(server):
        page = looker.open(f"http://127.0.0.1:{server.server_port}/guides/drift/")
        expect(page.locator("h1")).to_contain_text("Drift")
        # the index is loaded: a query before that is lost
        expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching")
        # keys: the theme reads the query at each key, and not at a change of the value
        page.locator("[data-md-component=search-query]").press_sequentially("maxNodesLost")
        found = page.locator(".md-search-result__link").first
        expect(found).to_be_visible()
        assert found.get_attribute("href")
        looker.close()


def test_a_wrong_link_fails_the_build(tmp_path: Path) -> None:
    wrong = ("b.md", "#c", "index.md#d", "/e", "f.yaml")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# A\n\n" + " ".join(f"[a]({one})" for one in wrong))
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {CONFIG}\ndocs_dir: docs\nhooks: []\nnav: [index.md]\ntheme: mkdocs\n"
    )
    done = build(config, tmp_path / "site")
    assert done.returncode == 1
    assert [one for one in wrong if f"'{one}'" not in done.stderr] == []


def targets() -> Iterator[tuple[str, str, str]]:
    """A link, its page of the site, and its target there."""
    yield "../gitops_ds/checks/pages/DS310.md", "alternatives.md", "reference/rules/DS310.md"
    yield "../CHANGELOG.md", "releases.md", "project/CHANGELOG.md"
    yield "docs/rollouts.md", "project/CONTRIBUTING.md", "../rollouts.md"
    yield "../../../docs/rollouts.md", "reference/rules/DS703.md", "../../rollouts.md"
    yield "../schemas", "rules.md", f"{SITE['FORGE']}/tree/main/schemas"
    yield "DS001.md", "reference/rules/DS002.md", "DS001.md"
    yield f"{SITE['FORGE']}/blob/main/docs/rollouts.md", "install.md", "rollouts.md"
    yield "https://kubernetes.io/", "install.md", "https://kubernetes.io/"
    yield "missing.md", "install.md", "missing.md"


@pytest.mark.parametrize(("link", "uri", "target"), list(targets()))
def test_a_link_of_a_file_is_mapped_to_the_site(link: str, uri: str, target: str) -> None:
    origins = {page: path for path, page in SITE["sources"]().items()}
    origin = origins.get(uri, f"docs/{uri}")
    text = f"[a]({link}#b) and [c](#d)"
    assert SITE["relinked"](text, origin, uri) == f"[a]({target}#b) and [c](#d)"
