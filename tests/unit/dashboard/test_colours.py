"""The style sheet: contrast of what is read, and nothing from elsewhere."""

import importlib.resources
import re

import pytest

STATIC = importlib.resources.files("headrace.dashboard") / "static"
SHEET = (STATIC / "style.css").read_text()
TEXT_ON_GROUND = [
    *((text, ground) for text in ("ink", "muted") for ground in ("ground", "surface", "raised")),
    ("accent", "surface"), ("accent", "ground"), ("accent-ink", "accent"), ("ink", "busy-ground"),
    ("bad", "bad-ground"), ("warn", "warn-ground"), ("good", "good-ground"), ("busy", "busy-ground"),
    ("bad", "surface"), ("warn", "surface"), ("muted", "busy-ground"),
]  # fmt: skip


def palettes():
    light, system_dark, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root[^{]*\{([^}]*)\}", SHEET)
    )
    return {"light": light, "dark as the system": system_dark, "dark": dark}


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["light", "dark as the system", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_ON_GROUND)
def test_text_can_be_read(name, text, ground):
    palette = palettes()[name]
    assert contrast(palette[text], palette[ground]) >= 4.5


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize("series", [1, 2, 3, 4])
def test_lines_can_be_seen(name, series):
    palette = palettes()[name]
    assert contrast(palette[f"series-{series}"], palette["surface"]) >= 3


def test_both_ways_to_dark_are_the_same():
    assert palettes()["dark"] == palettes()["dark as the system"]


def test_nothing_comes_from_elsewhere():
    for file in STATIC.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "@import" not in text
