"""Lines of source by name: where a variable grows or is made, who is called at a line. It only reads."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

GROWING: Final = frozenset(
    {"append", "appendleft", "extend", "insert", "add", "update", "setdefault", "put", "push"}
)
MODEL_METHODS: Final = frozenset(
    {
        "fit",
        "evaluate",
        "predict",
        "train_on_batch",
        "test_on_batch",
        "predict_on_batch",
        "predict_step",
        "call",
    }
)
SHRINKING: Final = frozenset({"pop", "popleft", "popitem", "remove", "clear", "discard", "get_nowait"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=64)
def read_tree(file: str) -> ast.Module | None:
    """The syntax tree of a source file or of a notebook's cell, or `None` where there is none to read."""
    lines = linecache.getlines(file)  # The code of a cell is nowhere else.
    try:
        return _without_magic(ast.parse("".join(lines))) if lines else None
    except (SyntaxError, ValueError):
        return None


def _without_magic(tree: ast.Module) -> ast.Module:
    """The code of a cell that begins with a magic such as `%%time`: IPython hands it over as a text."""
    match tree.body:
        case [
            ast.Expr(
                ast.Call(func=ast.Attribute(attr="run_cell_magic"), args=[_, _, ast.Constant(str(code))])
            )
        ]:
            return ast.increment_lineno(ast.parse(code), 1)
    return tree


def growth_line(tree: ast.AST, name: str) -> int | None:
    r"""Where something is put into a container: `name.append(...)`, `name[...] = ...`, `name += ...`.

    Example:
    >>> growth_line(ast.parse("kept = []\nfor x in y:\n    kept.append(x)"), "kept")
    3
    """
    lines = (node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and _grows(node, name))
    return min(lines, default=None)


def shrinks(tree: ast.AST, name: str) -> bool:
    r"""Whether something is taken out of a container: `name.pop(...)`, `del name[...]`, `name = name[...]`.

    Example:
    >>> shrinks(ast.parse("kept.append(x)\nif len(kept) > 50:\n    kept.pop(0)"), "kept")
    True
    """
    return any(_shrinks(node, name) for node in ast.walk(tree))


def assignment_line(tree: ast.AST, name: str, *, before: int | None = None) -> int | None:
    """The last line, up to `before`, that gives `name` a value; the first of all where none is before."""
    lines = sorted(
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and _makes(node, name)
    )
    if not lines:
        return None
    earlier = [line for line in lines if before is not None and line <= before]
    return earlier[-1] if earlier else lines[0]


def definition_line(tree: ast.AST, first_line: int) -> int:
    """The line of `def` for a function whose code begins at `first_line`, which may be a decorator's."""
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            lines = [node.lineno, *(each.lineno for each in node.decorator_list)]
            if min(lines) == first_line:
                return node.lineno
    return first_line


def receiver_at(tree: ast.AST, line: int) -> str | None:
    """What is called at a line, without the method: `"model"` for `model.fit(x, y)` and for `model(x)`.

    Example:
    >>> receiver_at(ast.parse("history = model.fit(x, y)"), 1)
    'model'
    """
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _covers(node, line)]
    for call in sorted(calls, key=lambda each: (each.lineno != line, each.col_offset)):
        target = call.func
        if isinstance(target, ast.Attribute) and target.attr in MODEL_METHODS:
            target = target.value
        if isinstance(target, ast.Name | ast.Attribute):
            return target.id if isinstance(target, ast.Name) else target.attr
    return None


def target_at(tree: ast.AST, line: int) -> str | None:
    r"""The name that the statement at a line gives a value to; of a `return`, the function's own name.

    Example:
    >>> target_at(ast.parse("data = (source\n    .map(parse))"), 2)
    'data'
    """
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _covers(node, line)]
    for node in sorted(inside, key=lambda each: -each.lineno):
        names = [each.id for each in _targets(node) if isinstance(each, ast.Name)]
        if names:
            return names[0]
        if isinstance(node, _Function):
            return node.name
    return None


def method_lines(tree: ast.AST, method: str) -> list[int]:
    """The lines that call a method: `.cache(...)`."""
    return sorted(
        node.func.end_lineno or node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
    )


def _covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _grows(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return _is(node.target, name)
    if isinstance(node, ast.Assign):
        return any(isinstance(each, ast.Subscript) and _is(each.value, name) for each in node.targets)
    return isinstance(node, ast.Expr) and any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in GROWING
        and _is(_root(call.func.value), name)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
    )


def _shrinks(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Delete):
        return any(isinstance(each, ast.Subscript) and _is(each.value, name) for each in node.targets)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        return _is(node.value.value, name) and any(_is(_root(each), name) for each in node.targets)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in SHRINKING
        and _is(_root(node.func.value), name)
    )


def _root(node: ast.expr) -> ast.expr:
    """`kept` of `kept["loss"].append(...)`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _makes(node: ast.stmt, name: str) -> bool:
    return any(_is(each, name) for each in _targets(node))


def _targets(node: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
    elif isinstance(node, ast.AnnAssign):
        yield node.target


def _is(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name
    return isinstance(node, ast.Attribute) and node.attr == name
