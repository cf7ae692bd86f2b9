"""The settings of the webhook: whose deliveries are believed, and where they come in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """`secret_file` holds a secret in each line, any of which does; without one only repositories
    with their own are woken.
    """

    secret_file: str = ""
    path: str = "/hook"
    max_bytes: int = 1 << 20


def parse(told: Mapping[str, Any]) -> WebhookSettings:
    """The settings `listen.webhook` of a group that its schema found right."""
    default = WebhookSettings()
    return WebhookSettings(
        told.get("secretFile") or "",
        (told.get("path") or default.path).rstrip("/"),
        told.get("maxBytes") or default.max_bytes,
    )
