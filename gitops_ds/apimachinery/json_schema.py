"""JSON Schemas of a repository, evaluated under the limit of CPU time. Nothing is ever fetched for
one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from gitops_ds.model import cpu_limit
from gitops_ds.model.objects import Path

# A schema by the URI that a `$ref` names; None: not known.
Resolve = Callable[[str], Mapping[str, Any] | None]

TOO_SLOW: Final = (
    "the JSON Schemas of this repository need more CPU time than they may use: simplify patterns "
    "with nested repetition such as "
    "(a+)+, and allOf, anyOf or $ref that multiply each other"
)
TOO_LARGE: Final = (
    "the schema needs more memory than there is: simplify anyOf, oneOf and $ref that multiply "
    "each other"
)
CIRCLE: Final = "the schema can't be followed: its $ref lead in circles, or it is nested too deeply"


class UnusableSchema(Exception):
    """A schema that gives no verdict; the message says why, `path` leads to the place in the
    schema.
    """

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.path = path


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises UnusableSchema for what is no JSON Schema."""
    # Imported here: 80 ms that a repository of plain manifests need not pay.
    import jsonschema
    from jsonschema import Draft202012Validator

    try:
        with _bounded():
            Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UnusableSchema(
            f"this is no JSON schema: {shortened(error.message)}", tuple(error.absolute_path)
        ) from None


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Around an evaluation. Raises UnusableSchema where it takes more time, memory or depth than it
    may.
    """
    try:
        with cpu_limit.limited():
            yield
    except cpu_limit.CpuLimitExceeded:
        raise UnusableSchema(TOO_SLOW) from None
    except MemoryError:
        raise UnusableSchema(TOO_LARGE) from None
    except RecursionError:
        raise UnusableSchema(CIRCLE) from None


def validator(schema: Mapping[str, Any], resolve: Resolve = lambda _: None) -> Any:
    """Judges instances by the schema, for `errors`."""
    import referencing
    import referencing.exceptions
    import referencing.jsonschema
    from jsonschema import Draft202012Validator

    def retrieve(uri: str) -> Any:
        schema = resolve(uri)
        if schema is None:
            raise referencing.exceptions.NoSuchResource(uri)
        return referencing.jsonschema.DRAFT202012.create_resource(schema)

    registry = referencing.Registry(retrieve=retrieve)  # type: ignore[call-arg]  # attrs
    return Draft202012Validator(schema, registry=registry)


def errors(judge: Any, instance: Any, at_most: int) -> list[Any]:
    """The ValidationErrors of the instance. Raises UnusableSchema where it gives no verdict."""
    import referencing.exceptions

    try:
        with _bounded():
            return list(islice(judge.iter_errors(instance), at_most))
    except referencing.exceptions.Unresolvable as error:
        raise UnusableSchema(
            f"the schema refers to {shortened(error.ref)}, which is not known"
        ) from None
    except re.error as error:
        raise UnusableSchema(
            f"{shortened(str(error.pattern))} is no regular expression: {error.msg}"
        ) from None
    except (ArithmeticError, ValueError, TypeError) as error:
        raise UnusableSchema(f"the schema can't be applied: {shortened(str(error))}") from None


def shortened(text: str, longest: int = 200) -> str:
    """The text, cut where it is too long for a message: jsonschema quotes the whole instance."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
