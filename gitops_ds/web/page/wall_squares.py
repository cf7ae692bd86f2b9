"""The nodes of one agent as squares that fill their tile on a wall, whatever its size. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

_STEP, _SIDE = 10, 9  # from one square to the next, and its side, in units of the drawing
_SIGNS = {"x": "✕", "w": "!", "p": "↻", "u": "u"}


def squares(codes: Sequence[str], shape: float) -> Markup:
    """A drawing of the codes of a map in an area of that shape, width by height; empty without
    codes.
    """
    if not codes:
        return Markup()
    columns = _columns(len(codes), shape)
    rows = max(2, math.ceil(len(codes) / columns))
    drawn = "".join(
        "".join(_square(code, place % columns * _STEP, place // columns * _STEP))
        for place, code in enumerate(codes)
    )
    return Markup(  # noqa: S704  the codes are our own letters
        f'<svg class="squares" viewBox="0 0 {columns * _STEP} {rows * _STEP}" '
        f'preserveAspectRatio="xMinYMin meet" aria-hidden="true">{drawn}</svg>'
    )


def _columns(count: int, shape: float) -> int:
    """The columns with the largest squares; of several, those with the fewest empty places."""

    def cost(columns: int) -> tuple[float, int]:
        rows = math.ceil(count / columns)
        return max(columns / shape, rows), columns * rows - count

    near = max(6, round(math.sqrt(count * shape)))
    return min(range(max(6, near // 2), near * 2), key=cost)


def _square(code: str, x: int, y: int) -> Iterator[str]:
    classes = code.split()
    name = f' class="{code}"' if code else ""
    yield f'<rect{name} x="{x}" y="{y}" width="{_SIDE}" height="{_SIDE}" rx="1.5"/>'
    sign = next((_SIGNS[one] for one in classes if one in _SIGNS), "")
    letter = next((one.upper() for one in classes if one in "bcdefg"), "")
    if sign or letter:
        kind = ' class="on"' if "x" in classes else ' class="way"' if "p" in classes else ""
        yield f'<text{kind} x="{x + _SIDE / 2}" y="{y + _SIDE - 2}">{sign or letter}</text>'
