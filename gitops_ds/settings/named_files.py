"""The files of settings, such as those with tokens."""

from __future__ import annotations

import os
from pathlib import Path

from gitops_ds import errors


def read(name: str, file: str) -> bytes:
    """The content of the file of a setting. Raises SettingsError."""
    try:
        return Path(os.path.expandvars(file)).read_bytes()
    except OSError as error:
        raise errors.SettingsError(f"{name}: {file}: {error.strerror}") from None
