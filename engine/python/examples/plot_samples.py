"""Draws the samples of a run: wattle ycsb --samples samples.csv, then this script.

    python plot_samples.py samples.csv samples.svg [COLUMN]
"""

import csv
import sys


def read(path, column):
    """The time and one column of each sample."""
    with open(path, newline="") as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))
    names = rows[0]
    if column not in names:
        sys.exit(f"{path} has no column {column!r}; it has {', '.join(names)}")
    at = names.index(column)
    return [(float(row[0]), float(row[at] or 0)) for row in rows[1:]]


def svg(points, title, width=720, height=320, margin=48):
    """A line of points, with the greatest value and the length of the run."""
    last, top = max(x for x, _ in points) or 1, max(y for _, y in points) or 1
    scale_x, scale_y = (width - 2 * margin) / last, (height - 2 * margin) / top
    line = " ".join(
        f"{margin + x * scale_x:.1f},{height - margin - y * scale_y:.1f}" for x, y in points
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="13">'
        f'<text x="{margin}" y="24">{title}</text>'
        f'<text x="4" y="{margin + 4}">{top:,.0f}</text>'
        f'<text x="{width - margin}" y="{height - 16}">{last:g} s</text>'
        f'<path d="M{margin} {margin}V{height - margin}H{width - margin}" fill="none" '
        f'stroke="gray"/><polyline points="{line}" fill="none" stroke="#1f6feb" '
        f'stroke-width="2"/></svg>\n'
    )


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    column = sys.argv[3] if len(sys.argv) == 4 else "throughput"
    drawing = svg(read(sys.argv[1], column), column)
    with open(sys.argv[2], "w") as file:
        file.write(drawing)
