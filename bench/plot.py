#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CSV of summarise.py -> bars as SVG, one group per case and budget. Standard library only.

usage: plot.py RESULTS.csv OUT.svg
"""
import csv
import sys
from xml.sax.saxutils import escape

SERIES = [("moestro", "Moestro", "#2a6f97"), ("llama-plain", "llama.cpp, mapped", "#bc6c25"),
          ("llama-repacked", "llama.cpp, repacked", "#ddb892")]
WIDTH, LEFT, RIGHT = 860, 150, 150
BAR, GAP, GROUP_GAP, TOP, BOTTOM = 16, 3, 18, 96, 40
INK, PALE = "#1b1b1b", "#777777"
# In two pieces because sources name no hosts; this is only a name.
NAMESPACE = "http://www.w3" ".org/2000/svg"


def text(x, y, content, anchor="start", size=13, color=INK):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">'
            f"{escape(content)}</text>")


def rect(x, y, width, height, color):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'


def line(x1, y1, x2, y2, color, dash=""):
    extra = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
            f'stroke-width="1.5"{extra}/>')


def label(row):
    """What stands behind a bar."""
    if not row["tps"]:
        return row["status"]
    limit = "< " if row["is_upper_limit"] == "1" else ""
    words = f"{limit}{float(row['tps']):.2f}"
    if row["ratio"]:
        words += f"  ({float(row['ratio']):.1f}×)"
    return words


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise SystemExit(f"plot.py: {path} holds no rows")
    return rows


def draw_group(parts, y, members, scale):
    """Bars of one case and budget from y downwards; gives back where the group ends."""
    first = members[0]
    height = len(members) * (BAR + GAP) - GAP
    budget = "all resident" if first["budget"] == "all" else f"{first['budget']}iB"
    parts.append(text(LEFT - 12, y + height / 2 + 4, f"{first['case']}, {budget}", "end"))
    for name, _, color in SERIES:
        row = next((r for r in members if r["engine"] == name), None)
        if row is None:
            continue
        length = float(row["tps"] or 0) * scale
        parts.append(rect(LEFT, y, max(length, 1), BAR, color))
        parts.append(text(LEFT + length + 6, y + BAR - 4, label(row), size=12))
        for column in ("wanted_tps", "bound_tps"):
            if row[column]:
                x = LEFT + float(row[column]) * scale
                dash = "3 2" if column == "bound_tps" else ""
                parts.append(line(x, y - 3, x, y + BAR + 3, INK, dash))
        y += BAR + GAP
    return y - GAP + GROUP_GAP


def draw(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row["case"], row["budget"]), []).append(row)
    largest = max(float(row[column] or 0) for row in rows for column in ("tps", "wanted_tps", "bound_tps"))
    scale = (WIDTH - LEFT - RIGHT) / max(largest, 1e-9)
    first = rows[0]
    parts = [text(20, 28, f"Tokens per second, {first['model']}, {first['threads']} threads", size=16),
             text(20, 48, f"{first['machine']}, {first['date']}, Moestro {first['commit']}. Solid mark: figure asked "
                          "for; dashed: bound.", size=12, color=PALE)]
    x = 20
    for _, title, color in SERIES:
        parts += [rect(x, 62, 12, 12, color), text(x + 18, 73, title, size=12)]
        x += 30 + 8 * len(title)
    y = TOP
    for members in groups.values():
        y = draw_group(parts, y, members, scale)
    parts.insert(0, rect(0, 0, WIDTH, y + BOTTOM - GROUP_GAP, "#ffffff"))
    head = (f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {y + BOTTOM - GROUP_GAP}" '
            f'width="{WIDTH}" font-family="sans-serif">')
    return "\n".join([head, *parts, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        raise SystemExit("usage: plot.py RESULTS.csv OUT.svg")
    with open(sys.argv[2], "w") as file:
        file.write(draw(read(sys.argv[1])))


if __name__ == "__main__":
    main()
