"""What must not be shown: Secrets, and values that a name gives away as secret. A change stays visible, its content does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_ds.kinds.secret_shapes import HIDDEN, TELLING
from gitops_ds.model.change import FieldChange
from gitops_ds.model.objects import Key, Path


def field(key: Key, change: FieldChange) -> FieldChange:
    """The change with its secret values hidden."""
    if (key.kind == "Secret" and change.path[:1] in (("data",), ("stringData",))) or _is_telling(change.path):
        return FieldChange(change.path, *(None if value is None else HIDDEN for value in (change.old, change.new)))
    return FieldChange(change.path, value(change.old), value(change.new))


def value(shown: Any) -> Any:
    """A value from a pod template with the secret-looking environment hidden."""
    if isinstance(shown, Mapping):
        name = shown.get("name")
        if isinstance(name, str) and isinstance(shown.get("value"), str) and TELLING.search(name):
            return {**shown, "value": HIDDEN}
        return {key: value(below) for key, below in shown.items()}
    if isinstance(shown, list):
        return [value(item) for item in shown]
    return shown


def body(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A whole object for people to read."""
    if shown.get("kind") == "Secret":
        hidden = {part: dict.fromkeys(shown[part], HIDDEN) for part in ("data", "stringData") if shown.get(part)}
        return {**shown, **hidden}
    found: dict[str, Any] = value(shown)
    return found


def _is_telling(path: Path) -> bool:
    """Whether the path leads to the value of an environment variable with a secret's name."""
    return len(path) >= 3 and path[-1] == "value" and path[-3] == "env" and bool(TELLING.search(str(path[-2])))
