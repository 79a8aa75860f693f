"""Colours of the explorer's page for people who see no green: every two that a picture sets against each other stay apart.

The simulation is that of Machado, Oliveira and Fernandes 2009 (deuteranopia, severity 1), in linear RGB; distances are
those of CIELAB (1976).
"""

import itertools
import re

DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
LEAST = 20.0  # a difference of 2 can just be seen
LEAST_CONTRAST = 3.0  # of marks with the card that they are drawn on (WCAG 1.4.11)
TOGETHER = ("blue", "red", "amber", "green", "ink")


def linear(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def luminance(rgb):
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def lab(rgb):
    x = 0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]
    z = 0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x / 0.95047, luminance(rgb), z / 1.08883))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def seen(colour):
    rgb = linear(colour)
    return [min(1.0, max(0.0, sum(w * c for w, c in zip(row, rgb)))) for row in DEUTERANOPIA]


def distance(a, b):
    return sum((p - q) ** 2 for p, q in zip(lab(seen(a)), lab(seen(b)))) ** 0.5


def contrast(a, b):
    low, high = sorted((luminance(linear(a)), luminance(linear(b))))
    return (high + 0.05) / (low + 0.05)


def faults_of(theme, colours):
    found = []
    for a, b in itertools.combinations(TOGETHER, 2):
        if (apart := distance(colours[a], colours[b])) < LEAST:
            found.append(f"{theme}: {a} and {b} are {apart:.0f} apart without green, expected {LEAST:.0f}")
    for name in TOGETHER:
        if (ratio := contrast(colours[name], colours["card"])) < LEAST_CONTRAST:
            found.append(f"{theme}: {name} has a contrast of {ratio:.1f} with the card, expected {LEAST_CONTRAST}")
    return found


def faults(page_text):
    """Of both themes of the page's style."""
    themes = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", page_text, re.DOTALL)]
    planted = {"blue": "#2563c9", "red": "#cf2e2e", "amber": "#b4660a", "green": "#0b7a5b", "ink": "#16202c", "card": "#ffffff"}
    found = [] if faults_of("planted", planted) else ["colours known to be alike pass"]
    if len(themes) < 2:
        return found + [f"expected two themes in the page, got {len(themes)}"]
    return found + [fault for name, theme in zip(("light", "dark"), themes) for fault in faults_of(name, theme)]
