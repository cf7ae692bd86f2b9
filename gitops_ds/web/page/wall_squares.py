"""The nodes of one agent as squares that fill their tile on a wall, of any size. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

_STEP, _SIDE = 10, 7  # the distance of squares, and the side of a square without its border
_SIGNS = {"x": "✕", "w": "!", "p": "↻", "u": "u"}


def squares(codes: Sequence[str], shape: float) -> Markup:
    """A drawing of the codes of a map in an area of that shape, width by height; empty without
    codes.
    """
    if not codes:
        return Markup()
    columns = _columns(len(codes), shape)
    rows = max(2, math.ceil(len(codes) / columns))
    places: dict[str, list[tuple[int, int]]] = {}
    for number, code in enumerate(codes):
        state = " ".join(one for one in code.split() if one[0] != "r")
        place = number % columns * _STEP, number // columns * _STEP
        places.setdefault(state, []).append(place)
    drawn = "".join("".join(_drawn(state, at)) for state, at in sorted(places.items()))
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


def _drawn(state: str, places: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The squares of one state as one path, and their signs as one text."""
    name = f' class="{state}"' if state else ""
    path = "".join(f"M{x + 1} {y + 1}h{_SIDE}v{_SIDE}h-{_SIDE}z" for x, y in places)
    yield f'<path{name} d="{path}"/>'
    letters = state.split()
    sign = next((_SIGNS[one] for one in letters if one in _SIGNS), "")
    if sign := sign or next((one.upper() for one in letters if one in "bcdefg"), ""):
        kind = ' class="on"' if "x" in letters else ' class="way"' if "p" in letters else ""
        across = " ".join(f"{x + 4.5:g}" for x, _ in places)
        down = " ".join(str(y + 7) for _, y in places)
        yield f'<text{kind} x="{across}" y="{down}">{sign * len(places)}</text>'
