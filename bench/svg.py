"""A small chart with logarithmic axes, as SVG: points, the lines between them, and dashed lines for what theory says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 74, 28, 34, 46
COLOURS = ("#3f51b5", "#d84315", "#2e7d32", "#6a1b9a", "#00838f", "#795548")


@dataclass(frozen=True)
class Line:
    """`theory` is the slope that is expected for large x, drawn through the last point; None draws nothing."""

    label: str
    points: list[tuple[float, float]]
    theory: float | None = None


def chart(title: str, x_label: str, y_label: str, lines: list[Line]) -> str:
    drawn = [line for line in lines if line.points]
    xs = [math.log10(x) for line in drawn for x, _ in line.points]
    ys = [math.log10(max(y, 1e-12)) for line in drawn for _, y in line.points]
    low_x, high_x = min(xs), max(max(xs), min(xs) + 0.3)
    low_y, high_y = math.floor(min(ys)), max(math.ceil(max(ys)), math.floor(min(ys)) + 1)

    def across(x: float) -> float:
        return LEFT + (math.log10(x) - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        share = (math.log10(max(y, 1e-12)) - low_y) / (high_y - low_y)
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(WIDTH / 2, 18, title, "middle", 13),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle"),
        f'<g transform="translate(14 {HEIGHT / 2:.0f}) rotate(-90)">{_text(0, 0, y_label, "middle")}</g>',
    ]
    for power in range(low_y, high_y + 1):
        y = down(10.0**power)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(_text(LEFT - 6, y + 4, f"1e{power}", "end"))
    for x in sorted({x for line in drawn for x, _ in line.points}):
        parts.append(f'<path d="M{across(x):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eeeeee"/>')
        parts.append(_text(across(x), HEIGHT - BOTTOM + 15, f"{x:g}", "middle"))
    for number, line in enumerate(drawn):
        parts += _drawn(line, COLOURS[number % len(COLOURS)], number, across, down)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(line: Line, colour: str, number: int, across: object, down: object) -> list[str]:
    assert callable(across)
    assert callable(down)
    path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in line.points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    parts += [
        f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3" fill="{colour}"/>' for x, y in line.points
    ]
    if line.theory is not None and len(line.points) > 1:
        (first, _), (last, end) = line.points[0], line.points[-1]
        start = end * (first / last) ** line.theory
        ends = f"M{across(first):.1f} {down(start):.1f}L{across(last):.1f} {down(end):.1f}"
        parts.append(f'<path d="{ends}" stroke="{colour}" stroke-dasharray="4 4" fill="none"/>')
    y = TOP + 10 + 15 * number
    parts.append(f'<path d="M{LEFT + 8} {y - 4}h18" stroke="{colour}" stroke-width="2"/>')
    parts.append(_text(LEFT + 30, y, line.label, "start"))
    return parts


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="#333333">{escape(text)}</text>'
