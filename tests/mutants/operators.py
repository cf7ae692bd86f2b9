"""The mutants of a module: each is its syntax tree with one node changed.

Texts stay as they are, since goldens hold the wording; so do annotations, decorators, options of
classes, `assert` and `strict=` of `zip`, which decide nothing. A result becomes None, but an empty
text becomes another one, and a false or a zero its opposite: None is as false as they are, and mypy
finds it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SWAPPED: dict[type[ast.AST], Callable[[], Any]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
REMOVABLE = (ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Located = ast.expr | ast.stmt
Scope = tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, ...]


@dataclass(frozen=True)
class Mutant:
    """A change at one place of a module. `function` is the first line of the outermost function
    or method around it, 0 outside functions; `key` names the change without its line.
    """

    path: Path
    source: str
    line: int
    function: int
    key: str
    index: int

    def tree(self) -> ast.Module:
        """The module with the change."""
        tree = ast.parse(self.source)
        node, replacement = list(_changes(tree))[self.index][1:]
        _replace(tree, node, replacement)
        return ast.fix_missing_locations(tree)


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of a module, in the order of its source."""
    source = path.read_text()
    times: Counter[str] = Counter()
    result = []
    for index, (scope, node, replacement) in enumerate(_changes(ast.parse(source))):
        names = [part.name for part in scope]
        change = f"{_short(node)} -> {_short(replacement)}"
        key = f"{'.'.join(names) or 'module'}: {change}"
        times[key] += 1
        if times[key] > 1:
            key = f"{key} #{times[key]}"
        outer = next((part for part in scope if isinstance(part, FUNCTIONS)), None)
        first = min([outer.lineno, *(d.lineno for d in outer.decorator_list)]) if outer else 0
        result.append(Mutant(path, source, node.lineno, first, key, index))
    return result


def _short(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _changes(node: ast.AST, scope: Scope = ()) -> Iterator[tuple[Scope, Located, ast.AST]]:
    for place, replacement in _replacements(node):
        if scope or not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
            yield scope, place, replacement
    if isinstance(node, ast.Assert):
        return
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        scope = (*scope, node)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        if name == "keywords" and isinstance(node, ast.ClassDef):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and getattr(child, "arg", None) != "strict":
                yield from _changes(child, scope)


def _replacements(node: ast.AST) -> Iterator[tuple[Located, ast.AST]]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPPED:
            yield node, ast.Compare(node.left, [SWAPPED[type(operator)]()], node.comparators)
        case ast.BoolOp(op=operator):
            yield node, ast.BoolOp(SWAPPED[type(operator)](), node.values)
        case ast.BinOp(op=operator) if type(operator) in SWAPPED:
            yield node, ast.BinOp(node.left, SWAPPED[type(operator)](), node.right)
        case ast.AugAssign(op=operator) if type(operator) in SWAPPED:
            yield node, ast.AugAssign(node.target, SWAPPED[type(operator)](), node.value)
        case ast.Constant(value=bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield node, ast.Constant(value + 1)
        case ast.Return(value=ast.Constant(value="")):
            yield node, ast.Return(ast.Constant("mutant"))
        case ast.Return(value=ast.expr() as value) if not _is_false(value):
            yield node, ast.Return(ast.Constant(None))
        case ast.UnaryOp(op=ast.Not()):
            yield node, node.operand
        case _:
            pass
    if isinstance(node, REMOVABLE) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield node, ast.Pass()
    for condition in _conditions(node):
        if not _has_an_opposite(condition):
            yield condition, ast.UnaryOp(ast.Not(), condition)


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            return [node.test]
        case ast.comprehension():
            return node.ifs
        case ast.match_case(guard=ast.expr() as guard):
            return [guard]
        case _:
            return []


def _has_an_opposite(condition: ast.expr) -> bool:
    """Whether another operator makes the negated condition already."""
    match condition:
        case ast.Compare(
            ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]
        ):
            return True
        case ast.UnaryOp(op=ast.Not()) | ast.Constant():
            return True
        case _:
            return False


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _replace(tree: ast.Module, node: ast.AST, replacement: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, ast.copy_location(replacement, node))
                return
            if isinstance(value, list) and any(child is node for child in value):
                value[[child is node for child in value].index(True)] = ast.copy_location(
                    replacement, node
                )
                return
