"""A second copy of our modules, with one changed line in one of them.

Nothing global is touched: the copy has an import of its own, which finds its modules in a
dictionary and reads what is missing from source. Everything that is not ours is shared.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
OURS = ("gitops_ds", "tests")


class Copy:
    """`changes` are, by module, pairs of a text that its source has exactly once, and its
    replacement.

    The text is compared with `ast.unparse` of the source, so that the width of lines has no effect.

    The packages in `shared` are not copied. msgspec resolves the annotations of a class in the real
    module, so classes that it decodes with a hook for their types are to be shared.
    """

    def __init__(
        self, changes: Mapping[str, tuple[str, ...]], shared: tuple[str, ...] = ()
    ) -> None:
        self._changes, self._shared = changes, shared
        self._modules: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}

    def compile_changes(self) -> None:
        """Only find the changed texts: AssertionError if a source has one of them not exactly
        once.
        """
        for name, change in self._changes.items():
            _compiled(_path(name), *change)

    def module(self, name: str) -> ModuleType:
        """A module of the copy."""
        if name not in self._modules:
            parent, _, last = name.rpartition(".")
            if parent:
                self.module(parent)
            if any(f"{name}.".startswith(f"{one}.") for one in self._shared):
                self._modules[name] = importlib.import_module(name)
                if parent:
                    setattr(self.module(parent), last, self._modules[name])
                return self._modules[name]
            if name.partition(".")[0] in OURS:
                # dataclasses look up the real module of a class by its name
                importlib.import_module(name)
            made = self._modules[name] = ModuleType(name)
            path = _path(name)
            package = name if path.name == "__init__.py" else parent
            made.__dict__.update(
                __builtins__=self._builtins, __file__=str(path), __path__=[], __package__=package
            )
            exec(_compiled(path, *self._changes.get(name, ())), made.__dict__)
            if parent:
                setattr(self.module(parent), last, made)
        return self._modules[name]

    def _import(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        if level or name.partition(".")[0] not in OURS:
            return builtins.__import__(name, globals, locals, fromlist, level)
        found = self.module(name)
        for member in fromlist or ():
            if not hasattr(found, member) and _path(f"{name}.{member}").exists():
                self.module(f"{name}.{member}")
        return found if fromlist else self.module(name.partition(".")[0])


def _path(module: str) -> Path:
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@functools.cache
def _compiled(path: Path, *changes: str) -> CodeType:
    if not changes:  # with its bytecode, if that is cached
        code = SourceFileLoader("", str(path)).get_code("")
        assert code is not None
        return code
    source = ast.unparse(ast.parse(path.read_text()))
    plain = [text.replace('"', "'") for text in changes]
    for old, new in zip(plain[::2], plain[1::2], strict=True):
        assert source.count(old) == 1, f"{path} holds {source.count(old)} times: {old}"
        source = source.replace(old, new)
    return compile(source, str(path), "exec")
