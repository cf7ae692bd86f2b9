"""Error messages for refused requests to a forge. Pure."""

from __future__ import annotations

from gitops_ds import errors
from gitops_ds.forges.access import ForgeToken
from gitops_ds.forges.contract import ForgeApi, RequestPurpose


def error(
    api: ForgeApi, purpose: RequestPurpose, status: int, message: str, token: ForgeToken
) -> errors.ForgeError:
    """The error for a failure that a retry can't resolve. A forge also answers 404 for objects that
    the token may not read.
    """
    answer = f"{status} {message}".strip()
    if status == 401:
        return errors.ForgeDenied(
            f"{api.name} did not accept the token of {token.name} ({answer}): it may have expired"
        )
    permission = api.required_permission(purpose, of_job=token.of_job)
    if status == 404 and purpose is RequestPurpose.GET_PULL_REQUEST:
        return errors.ForgeDenied(
            f"{api.pull_request} not found on {api.name}, or the token of {token.name} may not "
            f"read it ({answer}): it needs {permission}"
        )
    if status in (403, 404):
        return errors.ForgeDenied(
            f"{api.name} refused to {purpose.value} ({answer}): the token of {token.name} needs "
            f"{permission}"
        )
    return errors.ForgeError(f"{api.name} refused to {purpose.value} ({answer})")
