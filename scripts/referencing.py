"""The generated parts of docs/reference/ and docs/promises.md, from what defines them.

Text between `<!-- generated: NAME -->` and `<!-- end: NAME -->` of a page is replaced; the rest is
written manually.

- commands/NAME.md: usage, options and examples from click's definition of the command
- settings.md: the groups and keys of the settings file, from their structs
- files.md and json.md: the keys of files and of documents, from their JSON schemas
- metrics.md: from the registry of the service
- promises.md: from tests/promises.toml, which names the tests of each promise
- threat-model.md: from tests/threat_model.toml, which names the tests of each row
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from gitops_ds import cli
from gitops_ds.cli import command_table, examples
from gitops_ds.notify.metrics import Metrics
from gitops_ds.service.settings import json_schema

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs/reference"
Schema = Mapping[str, Any]
_PART = r"(?P<begin><!-- generated: {name} -->\n).*?(?P<end>^<!-- end: {name} -->$)"
# Words of a help text that are formatted as code: options, variables, addresses of the service.
_CODE = re.compile(r"(?<![\w`/.-])(--?[a-z][\w-]*|GITOPS_DS_\w+|/[a-z]+z|/metrics)(?![\w`-])")
# Files of a repository, and their schemas.
FILES = {
    "gitops-ds.yaml": "gitops-ds",
    "clusters/NAME.yaml": "cluster",
    "environments/NAME.yaml": "environment",
    "agents/NAME/agent.yaml": "agent",
    "agents/NAME/rollout.yaml": "rollout",
    "agents/NAME/variants.yaml": "variants",
    "agents/NAME/source.yaml": "source",
}
# Documents of `-o json`, and their schemas.
DOCUMENTS = {
    "plan and apply": "plan",
    "check": "check-report",
    "get": "status-list",
    "history": "history",
}
# Pages with more about a setting.
MORE = {
    "repository.credentials": "../repository-access.md#credentials",
    "repository.credentials.githubApp": "../repository-access.md#github-app",
    "repository.verify": "../guides/signed-commits.md",
    "repository.verify.forcePush": "../guides/rewritten-history.md",
    "repository.webhook": "../guides/webhooks.md",
    "repository.forge": "../notifications.md#the-status-of-a-commit",
    "repository.approvers": "../guides/approvals.md",
    "repository.push": "../guides/reverts.md",
    "render.allow": "command-line.md#what-may-run",
    "apply.guards": "../guides/deletions.md",
    "apply.deletion": "../guides/deletions.md",
    "apply.drift": "../guides/drift.md",
    "apply.ignore": "../guides/drift.md#ignored-fields",
    "apply.impersonate": "../guides/permissions.md#impersonation",
    "apply.allow": "../templates-in-the-cluster.md#allowed-objects",
    "apply.adopt": "../guides/existing-objects.md",
    "templates": "../templates-in-the-cluster.md",
    "startupTaints": "../guides/startup-taints.md",
    "controller.powers": "../beside-upstream.md",
    "election": "../guides/replicas.md",
    "listen.page": "../page.md",
    "listen.webhook": "../guides/webhooks.md",
    "health": "../guides/health.md",
    "notify": "../notifications.md",
    "metrics": "../rollouts.md#gates",
}


def pages() -> Mapping[Path, str]:
    """The text of each page with generated parts."""
    context = click.Context(cli.cli)
    found = {
        REFERENCE / f"commands/{name}.md": command(name, context) for name in command_table.COMMANDS
    }
    parts = {
        "command-line": {"commands": commands(), "writes": writes()},
        "settings": {"settings": settings()},
        "files": {"files": from_schemas(FILES)},
        "json": {"documents": from_schemas(DOCUMENTS)},
        "metrics": {"metrics": metrics()},
    }
    for name, generated in parts.items():
        page = REFERENCE / f"{name}.md"
        found[page] = replaced(page.read_text("utf-8"), generated)
    page = ROOT / "docs/promises.md"
    found[page] = replaced(page.read_text("utf-8"), {"promises": promises()})
    page = ROOT / "docs/threat-model.md"
    found[page] = replaced(page.read_text("utf-8"), {"threat-model": threat_model()})
    return found


def replaced(text: str, parts: Mapping[str, str]) -> str:
    """The page with its generated parts replaced. Raises ValueError for a part that it lacks."""
    for name, part in parts.items():
        pattern = re.compile(_PART.format(name=name), re.MULTILINE | re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"no part {name!r} in the page beginning {text[:40]!r}")
        text = pattern.sub(lambda found, part=part: f"{found['begin']}{part}\n{found['end']}", text)
    return text


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table; a pipe in a cell is escaped."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def promises() -> str:
    """A section for each group of promises."""
    groups = tomllib.loads((ROOT / "tests/promises.toml").read_text("utf-8"))
    return "\n\n".join(
        "\n".join((f"## {title}\n", *(f"- {promise}." for promise in group)))
        for title, group in groups.items()
    )


def threat_model() -> str:
    """The table of who can cause what."""
    rows = tomllib.loads((ROOT / "tests/threat_model.toml").read_text("utf-8"))["rows"]
    head = ("who", "can write", "can cause at most")
    return table(head, [(row["who"], row["writes"], row["causes"]) for row in rows])


# Commands


def commands() -> str:
    """The table of all commands, in the order of `--help`."""
    rows = [
        (title if at == 0 else "", f"[`{name}`](commands/{name}.md)", entry.summary)
        for title, group in command_table.GROUPS.items()
        for at, (name, entry) in enumerate(group.items())
    ]
    return table(("group", "command", "description"), rows)


def writes() -> str:
    """The table of what the commands write, and a sentence with those that write nothing."""
    entries = command_table.COMMANDS.items()
    rows = [
        (
            f"[`{name}`](commands/{name}.md)",
            "; ".join(f"{_resources(one)}: {what}" for one, what in entry.writes.cluster.items()),
            entry.writes.git,
            "; ".join(filter(None, (", ".join(_caches(entry)), entry.writes.files))),
        )
        for name, entry in entries
        if any(entry.writes)
    ]
    nothing = ", ".join(f"`{name}`" for name, entry in entries if not any(entry.writes))
    head = ("command", "to the cluster", "to Git and its forge", "to files")
    return f"{table(head, rows)}\n\nNothing is written by {nothing}."


def _resources(plural: str) -> str:
    return "any kind" if plural == "*" else plural


def _caches(entry: command_table.CommandEntry) -> list[str]:
    return [f"`{folder}` of the cache" for folder in entry.writes.cache]


def command(name: str, context: click.Context) -> str:
    """The page of a command; with only headings for a new one."""
    page = REFERENCE / f"commands/{name}.md"
    defined = cli.cli.get_command(context, name)
    assert defined is not None
    parts = {"usage": usage(name, defined), "options": options(defined), "examples": lines(name)}
    empty = {part: f"<!-- generated: {part} -->\n<!-- end: {part} -->" for part in parts}
    new = (
        f"# gitops-ds {name}\n\n{empty['usage']}\n\n## Options\n\n{empty['options']}\n\n"
        f"## Examples\n\n{empty['examples']}\n"
    )
    return replaced(page.read_text("utf-8") if page.exists() else new, parts)


def usage(name: str, defined: click.Command) -> str:
    """The line of usage."""
    words = defined.collect_usage_pieces(click.Context(defined, info_name=name))
    return f"```console\ngitops-ds {name} {' '.join(words)}\n```"


def lines(name: str) -> str:
    """The examples of `--help`."""
    text = "\n".join(f"# {purpose}\n{line}" for purpose, line in examples.EXAMPLES[name])
    return f"```console\n{text}\n```"


def options(defined: click.Command) -> str:
    """The table of the options of a command."""
    context = click.Context(defined)
    rows = [
        (_names(option, context), _description(option, context))
        for option in defined.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    return table(("option", "description"), rows)


def _names(option: click.Option, context: click.Context) -> str:
    hidden = getattr(option, "alias", None)
    names = [name for name in (*option.opts, *option.secondary_opts) if name != hidden]
    value = option.make_metavar(context)
    if option.is_flag or option.count:
        value = ""
    elif _choices(option, context):
        value = "FORMAT" if "--output" in names else "VALUE"
    last = len(names) - 1
    return ", ".join(
        f"`{name}{' ' + value if value and i == last else ''}`" for i, name in enumerate(names)
    )


def _choices(option: click.Option, context: click.Context) -> list[str]:
    if option.metavar:
        return []
    known = re.fullmatch(r"\[(.+)\]", option.make_metavar(context))
    return known[1].split("|") if known and "|" in known[1] else []


def _description(option: click.Option, context: click.Context) -> str:
    text = _CODE.sub(r"`\1`", option.help or "")
    default = option.get_default(context, call=False)
    if choices := _choices(option, context):
        text += f" One of {', '.join(f'`{one}`' for one in choices)}."
    shown = option.show_default and default is not None and not option.is_flag
    if shown or (choices and isinstance(default, str)):
        text += (
            f" Default: `{default:g}`." if isinstance(default, float) else f" Default: `{default}`."
        )
    if option.multiple and "several" not in text and "repeated" not in text:
        text += " May be repeated."
    return text.strip()


# Keys of files


def settings() -> str:
    """A section for each group of the settings file."""
    return "\n\n".join(sections(json_schema.document(), "", MORE))


def from_schemas(names: Mapping[str, str]) -> str:
    """A section for each schema by its title, with the groups of its keys."""
    found = []
    for title, name in names.items():
        schema = json.loads((ROOT / f"schemas/{name}.schema.json").read_text("utf-8"))
        found.append(f"## {title}\n\n{schema['description']}")
        found += list(sections(schema, "", {}, level=3))
    return "\n\n".join(found)


def sections(root: Schema, group: str, more: Mapping[str, str], level: int = 2) -> Iterator[str]:
    """The table of the keys of each group, outermost first; equal groups once."""
    seen: set[str] = set()
    for path, schema in groups(root, root, group):
        rows = list(keys(schema, root, path, more))
        head: tuple[str, ...] = ("key", "type", "default", "description")
        if not any(row[2] for row in rows):
            head, rows = (*head[:2], head[3]), [(*row[:2], row[3]) for row in rows]
        text = table(head, rows)
        if not rows or text in seen:
            continue
        seen.add(text)
        if path:
            yield f"{'#' * level} {path}\n\n{prose(schema)}{link(path, more)}".rstrip()
        yield text


def keys(
    schema: Schema, root: Schema, path: str, more: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """The rows of a group."""
    for name, property in schema.get("properties", {}).items():
        key = resolved(property, root)
        below = f"{path}.{name}" if path else name
        yield f"`{name}`", kind(key, root), default(key), prose(key) + link(below, more)


def link(path: str, more: Mapping[str, str]) -> str:
    """The link to the page with more about a setting."""
    return f" [More]({more[path]})." if path in more else ""


def groups(schema: Schema, root: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """A group and the groups below it; a group of a list ends in `[]`, of a mapping in `.NAME`.

    A group of several places is in its first place.
    """
    yield path, schema
    for name, property in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        key = resolved(property, root)
        if below in ("repositories", "repository.apply"):
            continue
        for suffix, one in nested(key, root):
            yield from groups(one, root, below + suffix)


def nested(key: Schema, root: Schema) -> Iterator[tuple[str, Schema]]:
    """The groups of a key: its own, that of its items, or that of its values."""
    if "properties" in key:
        yield "", key
        return
    for one in key.get("anyOf", ()):
        yield from nested(resolved(one, root), root)
    for part, suffix in (("items", "[]"), ("additionalProperties", ".NAME")):
        if isinstance(key.get(part), dict):
            for deeper, one in nested(resolved(key[part], root), root):
                yield suffix + deeper, one


def resolved(key: Schema, root: Schema) -> Schema:
    """The key with the definition that it refers to; its own description takes precedence."""
    name = str(key.get("$ref", "")).removeprefix("#/$defs/")
    if name == "rollout.schema.json":  # its keys have a section of their own
        return {"properties": {}, "type": "object", **key}
    whole = {**root["$defs"][name], **key} if name else key
    for part in whole.get("allOf", ()):
        below = resolved(part, root).get("properties", {})
        whole = {**whole, "properties": {**whole.get("properties", {}), **below}}
    return whole


def prose(key: Schema) -> str:
    """The description of a key."""
    return _CODE.sub(r"`\1`", str(key.get("description", "")))


def default(key: Schema) -> str:
    """Its default, as in YAML."""
    value = key.get("default")
    if value is None:
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def kind(key: Schema, root: Schema) -> str:
    """Its type as text."""
    if "enum" in key:
        return ", ".join(f"`{one}`" for one in key["enum"])
    name = str(key.get("$ref", "")).removeprefix("#/$defs/")
    if "properties" not in key and name in (
        "duration",
        "share",
        "change",
        "name",
        "kubernetesVersion",
    ):
        return {"share": "number or percentage", "kubernetesVersion": "version"}.get(name, name)
    if "anyOf" in key:
        kinds = dict.fromkeys(kind(resolved(one, root), root) for one in key["anyOf"])
        return " or ".join(one for one in kinds if one)
    types = key.get("type", "")
    if types == "array":
        return f"list of {kind(resolved(key.get('items', {}), root), root) or 'groups'}"
    if isinstance(types, list):
        if "properties" in key:
            return "group or list" if "array" in types else "group"
        return " or ".join(one for one in types if one != "null")
    if types == "object":
        return "group" if "properties" in key else "mapping"
    return str(types)


def metrics() -> str:
    """The table of the metrics, in the order of their names."""
    rows = []
    for one in sorted(Metrics().descriptions(), key=lambda one: one.name):
        labels = ", ".join(f"`{name}`" for name in one.labels)
        rows.append((f"`{one.name}`", one.type, labels, one.help))
    return table(("metric", "type", "labels", "value"), rows)
