"""A forge's refusal as the sentence that says what to do. Pure."""

from __future__ import annotations

from gitops_ds import errors
from gitops_ds.forges.access import ForgeToken
from gitops_ds.forges.requests import Dialect, Doing


def error(
    dialect: Dialect, doing: Doing, status: int, message: str, token: ForgeToken
) -> errors.ForgeError:
    """The error for an answer that no second try would mend. A 404 is also how a forge hides what a
    token may not see.
    """
    said = f"{status} {message}".strip()
    if status == 401:
        return errors.ForgeDenied(
            f"{dialect.name} does not know the token of {token.name} ({said}): it may have expired"
        )
    needed = dialect.needed(doing, of_job=token.of_job)
    if status == 404 and doing is Doing.LOOK:
        there = (
            f"{dialect.name} has no such {dialect.pull_request}, or the token of {token.name} may "
            "not see it"
        )
        return errors.ForgeDenied(f"{there} ({said}): it needs {needed}")
    if status in (403, 404):
        return errors.ForgeDenied(
            f"{dialect.name} won't {doing.value} ({said}): the token of {token.name} needs {needed}"
        )
    return errors.ForgeError(f"{dialect.name} won't {doing.value} ({said})")
