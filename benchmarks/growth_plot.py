"""Growth as a plot in SVG, with logarithmic axes, in colours for a light and a dark page. Both axes
are multiples of a line's first point, so that a cost proportional to the work is on the diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 20, 60  # the margins around the lines
TICKS = (1, 10, 100)
MOST = 200.0  # the end of both axes
NEUTRAL, FAINT = "#808080", "#80808055"
COLOURS = ("#3b82f6", "#d97706", "#10a37f", "#c2569b", "#8b5cf6", "#d14343")


def svg(lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """The plot of the lines, by their names. A line has the amounts of work and their costs."""
    parts = [*_axes(), _path([(1, 1), (MOST, MOST)], NEUTRAL, dashed=True)]
    names = [("a cost that grows as the work", NEUTRAL)]
    for (name, points), colour in zip(lines.items(), COLOURS, strict=False):
        (work, cost), *_ = points
        multiples = [(x / work, y / cost) for x, y in points]
        parts.append(_path(multiples, colour))
        parts += [f'<circle cx="{_x(x):.1f}" cy="{_y(y):.1f}" r="3.5" fill="{colour}"/>'
                  for x, y in multiples]  # fmt: skip
        names.append((name, colour))
    for row, (name, colour) in enumerate(reversed(names)):
        x, y = WIDTH - RIGHT - 230, HEIGHT - BOTTOM - 14 - 19 * row
        parts.append(f'<rect x="{x}" y="{y - 6}" width="14" height="4" fill="{colour}"/>')
        parts.append(_text(x + 22, y, name, "start"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="13">\n'
        "<title>Cost as the work grows, logarithmic axes</title>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _x(multiple: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(multiple) / math.log(MOST)


def _y(multiple: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(multiple) / math.log(MOST)


def _axes() -> list[str]:
    bottom, middle = HEIGHT - BOTTOM, (TOP + HEIGHT - BOTTOM) / 2
    parts = []
    for tick in TICKS:
        x, y = _x(tick), _y(tick)
        grid = f"M{x:.1f} {bottom}V{TOP}M{LEFT} {y:.1f}H{WIDTH - RIGHT}"
        parts.append(f'<path d="{grid}" stroke="{FAINT}"/>')
        parts.append(_text(x, bottom + 20, f"{tick}x", "middle"))
        parts.append(_text(LEFT - 10, y + 4, f"{tick}x", "end"))
    parts.append(_text(_x(math.sqrt(MOST)), HEIGHT - 14, "work, multiple of the least", "middle"))
    upright = f'transform="rotate(-90 18 {middle:.0f})"'
    what = "CPU or memory beyond the start, multiple of the least"
    parts.append(_text(18, middle, what, "middle", upright))
    return parts


def _path(points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> str:
    way = "L".join(f"{_x(x):.1f} {_y(y):.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{NEUTRAL}"'
    return f"<text {place} {more}>{escape(text)}</text>"
