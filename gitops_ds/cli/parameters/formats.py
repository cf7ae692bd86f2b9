"""The formats of `-o`, and documents in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from gitops_ds.cli.parameters import options

if TYPE_CHECKING:  # --help imports none of these
    from click.shell_completion import CompletionItem

    from gitops_ds.kube.apimachinery import jsonpath

JSONPATH = "jsonpath="


class Output(str):
    """A format of `-o`: its name, and the parts of the template of `jsonpath`."""

    __slots__ = ("template",)
    template: tuple[jsonpath.Node, ...]

    @property
    def is_table(self) -> bool:
        """Whether it is a table."""
        return self in ("text", "wide")

    @property
    def is_wide(self) -> bool:
        """Whether the table has all columns."""
        return self == "wide"


class OutputType(click.ParamType[Output]):
    """A choice of formats, and for lists also `jsonpath=TEMPLATE`."""

    name = "format"

    def __init__(self, formats: Sequence[str], *, jsonpath: bool) -> None:
        self._formats, self._jsonpath = formats, jsonpath

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The formats, as --help prints those of a choice."""
        formats = (*self._formats, f"{JSONPATH}...") if self._jsonpath else self._formats
        return f"[{'|'.join(formats)}]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The formats that begin with the typed text."""
        from click.shell_completion import CompletionItem

        formats = (*self._formats, JSONPATH) if self._jsonpath else self._formats
        return [CompletionItem(format) for format in formats if format.startswith(incomplete)]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Output:
        """The format. Fails for an unknown one and for an invalid template."""
        text = str(value)
        if text in self._formats:
            return value if isinstance(value, Output) else Output(text)
        if not self._jsonpath:
            self.fail(f"{text!r} is not one of {', '.join(map(repr, self._formats))}.", param, ctx)
        if not text.startswith(JSONPATH):
            formats = ", ".join((*self._formats, f"{JSONPATH}..."))
            self.fail(f"{text!r} is not one of {formats}.", param, ctx)
        from gitops_ds.kube.apimachinery import jsonpath

        output = Output("jsonpath")
        try:
            output.template = jsonpath.template(text.removeprefix(JSONPATH))
        except jsonpath.InvalidPath as error:
            self.fail(f"the template: {error}", param, ctx)
        return output


def output(*formats: str, jsonpath: bool = False) -> Callable[[options.Command], options.Command]:
    """`-o` with these formats, and a template for `jsonpath`; the first is the default."""
    return options.option(
        "-o",
        "--output",
        type=OutputType(formats, jsonpath=jsonpath),
        default=formats[0],
        show_default=True,
        help="The format of the output.",
    )


def write(output: Output, document: Any, names: Sequence[str] = ()) -> None:
    """Prints a document in a format that is not a table; `names` are the lines of `-o name`."""
    match output:
        case "name":
            click.echo("".join(f"{name}\n" for name in names), nl=False)
        case "jsonpath":
            from gitops_ds.kube.apimachinery import jsonpath

            click.echo(jsonpath.render(output.template, document), nl=False)
        case "json":
            show_json(document)
        case _:
            show_yaml(document)


def show_json(document: Any) -> None:
    """Prints the document as JSON."""
    import orjson

    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def document(kind: str, /, **fields: Any) -> dict[str, Any]:
    """A document of gitops-ds of that kind."""
    return {"apiVersion": "gitops-ds.io/v1", "kind": kind, **fields}


def show_yaml(document: Any) -> None:
    """Prints the document as YAML."""
    from gitops_ds.yaml import writer

    click.echo(writer.dump(document), nl=False)
