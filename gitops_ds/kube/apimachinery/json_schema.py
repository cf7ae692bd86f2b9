"""JSON Schemas of a repository, evaluated with a limit of CPU time and without network."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # `--help` imports this module, and does not import the model
    from gitops_ds.core.objects import Path

# The schema for the URI of a `$ref`; None if unknown.
Resolve = Callable[[str], Mapping[str, Any] | None]

TOO_SLOW: Final = (
    "the JSON Schemas of this repository need more CPU time than they may use: simplify patterns "
    "with nested repetition such as "
    "(a+)+, and allOf, anyOf or $ref that multiply each other"
)
TOO_LARGE: Final = (
    "the schema needs more memory than is available: simplify anyOf, oneOf and $ref that multiply "
    "each other"
)
CIRCLE: Final = "the schema can't be resolved: its $ref form a cycle, or it is nested too deeply"


class UnusableSchema(Exception):
    """A schema without a verdict; the message is the reason, `path` the place in the schema."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.path = path


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises UnusableSchema for an invalid JSON Schema."""
    # Imported on demand: the import takes 80 ms, which plain manifests do not need.
    import jsonschema
    from jsonschema import Draft202012Validator

    try:
        with _bounded():
            Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UnusableSchema(
            f"this is not a valid JSON schema: {shortened(error.message)}",
            tuple(error.absolute_path),
        ) from None


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """The limits of an evaluation. Raises UnusableSchema if it exceeds the limit of time, memory or
    depth.
    """
    try:
        with limited():
            yield
    except CpuLimitExceeded:
        raise UnusableSchema(TOO_SLOW) from None
    except MemoryError:
        raise UnusableSchema(TOO_LARGE) from None
    except RecursionError:
        raise UnusableSchema(CIRCLE) from None


def validator(schema: Mapping[str, Any], resolve: Resolve = lambda _: None) -> Any:
    """A validator of the schema, for `errors`."""
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
    """The ValidationErrors of the instance. Raises UnusableSchema for a schema without a
    verdict.
    """
    import referencing.exceptions

    try:
        with _bounded():
            return list(islice(judge.iter_errors(instance), at_most))
    except referencing.exceptions.Unresolvable as error:
        raise UnusableSchema(
            f"the schema refers to {shortened(error.ref)}, which is unknown"
        ) from None
    except re.error as error:
        raise UnusableSchema(
            f"{shortened(str(error.pattern))} is not a valid regular expression: {error.msg}"
        ) from None
    except (ArithmeticError, ValueError, TypeError) as error:
        raise UnusableSchema(f"the schema can't be applied: {shortened(str(error))}") from None


def shortened(text: str, longest: int = 200) -> str:
    """The text, truncated for a message: jsonschema quotes the whole instance."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


class CpuLimitExceeded(BaseException):
    """The CPU time is used up. Not a subclass of Exception, because the isolation of failing rules
    must not catch it.
    """


# The shell sets it; by default the time is unlimited.
limiter: ContextVar[Callable[[], AbstractContextManager[None]] | None] = ContextVar(
    "limiter", default=None
)
_UNLIMITED = nullcontext()


def limited() -> AbstractContextManager[None]:
    """Counts the work inside the `with` against the limit. Raises CpuLimitExceeded when it is used
    up.
    """
    begin = limiter.get()
    return _UNLIMITED if begin is None else begin()
