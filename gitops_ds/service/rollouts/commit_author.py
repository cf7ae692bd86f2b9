"""The author of the commits that the service writes, from `repository.author`."""

from __future__ import annotations

from datetime import UTC, datetime

from gitops_ds.git.commit_writer import Signature
from gitops_ds.git.signing import KeyFormat, SigningKey
from gitops_ds.settings import base
from gitops_ds.settings.repository import RepositorySettings

_SIGNING_KEY = "repository.author.signingKeyFile"


def signature(settings: RepositorySettings, at: float) -> Signature:
    """The author at a time in seconds since 1970, with the present signing key in its file.

    Raises SettingsError for a file that can't be read.
    """
    author = settings.author
    key = (
        SigningKey(base.read_file(_SIGNING_KEY, author.signing_key_file), KeyFormat(author.format))
        if author.signing_key_file
        else None
    )
    return Signature(author.name, author.email, datetime.fromtimestamp(int(at), UTC), key)
