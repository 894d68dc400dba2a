"""What a pooler is for, as a picture for the README: figures of a page of measurements.

    PYTHONPATH=tests python3 -m harness.purpose    # writes the picture anew
"""

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = os.path.join(ROOT, "docs", "benchmarks", "2026-11-24.md")
PICTURE = os.path.join(ROOT, "docs", "benchmarks", "2026-11-24-purpose.svg")
STYLE = os.path.join(ROOT, "crates", "bench", "src", "bin", "howdah-bench", "page.css")
WIDTH, HEIGHT, FLOOR = 560, 240, 210
NAMES = ("PostgreSQL alone", "Howdah in front of it")


def rows(page, columns):
    """The first table with exactly these columns: {(first cell, second cell): [numbers]}."""
    table = re.search(rf"^\|\s*{columns}\s*\|\n\|[-:|]+\|\n((?:\|.*\n)+)", page, re.M).group(1)
    found = {}
    for line in table.splitlines():
        first, second, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        numbers = (re.match(r"\**([\d,.]+)", cell) for cell in cells)
        found[first, second] = [float(number.group(1).replace(",", "")) if number else None
                                for number in numbers]
    return found


def panels(page):
    """Title and [(name, PostgreSQL's TPS, Howdah's TPS)] of both halves."""
    table = rows(page, r"protocol \| clients \| direct \| howdah, 1 worker \| .*")
    crowd = [(f"{clients} clients", *table["simple", clients][:2])
             for clients in ("8", "40", "120", "500")]
    table = rows(page, r"\| clients \| postgresql \| howdah \| .*")
    logins = [(name, *table[group, "40"][:2]) for name, group in (
        ("in clear text", "simple, reconnecting"), ("over TLS", "simple, TLS and reconnecting"))]
    return [("Transactions a second (Howdah has at most 40 connections to PostgreSQL)", crowd),
            ("Transactions a second of 40 clients that log in for each one", logins)]


def bars(title, cells):
    """One half: two bars for each name, with their figures."""
    top = max(max(values) for _, *values in cells)
    room = (WIDTH - 50) / len(cells)
    bar = min(room * 0.4, 90)
    drawn = [f'<text x="50" y="-10">{title}</text><path class="grid" d="M46 {FLOOR}H{WIDTH}"/>']
    for index, (name, *values) in enumerate(cells):
        middle = 50 + room * (index + 0.5)
        for side, value in enumerate(values):
            tall = value / top * (FLOOR - 15)
            x = middle + bar * (side - 1)
            drawn.append(
                f'<rect class="c{side}" x="{x:.1f}" y="{FLOOR - tall:.1f}" width="{bar * 0.95:.1f}" '
                f'height="{tall:.1f}"/><text class="row" x="{x + bar * 0.475:.1f}" '
                f'y="{FLOOR - tall - 4:.1f}">{value:,.0f}</text>')
        drawn.append(f'<text class="row" x="{middle:.1f}" y="226">{name}</text>')
    return "".join(drawn)


def picture():
    """The picture as it should be."""
    with open(SOURCE) as file:
        page = file.read()
    with open(STYLE) as file:
        style = file.read()
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH + 40} {HEIGHT + 60}" '
        'role="img">',
        f"<style>svg {{ font: 13px system-ui, sans-serif; }} {style}"
        ".paper { fill: var(--paper); }</style>",
        '<rect class="paper" width="100%" height="100%"/>']
    for index, name in enumerate(NAMES):
        x = 50 + index * 180
        drawn.append(f'<rect class="c{index}" x="{x}" y="10" width="12" height="12"/>'
                     f'<text x="{x + 18}" y="20">{name}</text>')
    for index, (title, cells) in enumerate(panels(page)):
        drawn.append(f'<g transform="translate({index * (WIDTH + 40)} 60)">{bars(title, cells)}</g>')
    return "\n".join(drawn) + "\n</svg>\n"


if __name__ == "__main__":
    with open(PICTURE, "w") as written:
        written.write(picture())
