"""Colours as three channels from 0 to 255."""

import re

HEXADECIMAL = re.compile(r"#([0-9a-f]{3}|[0-9a-f]{6})", re.IGNORECASE)


def parse(text):
    found = HEXADECIMAL.fullmatch(text)
    if not found:
        raise ValueError(f"'{text}' is no colour; write it like #1a2b3c or #abc")
    digits = found[1]
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    return tuple(int(digits[at : at + 2], 16) for at in (0, 2, 4))


def luminance(colour):
    """The relative luminance of WCAG 2, from 0 for black to 1 for white."""

    def linear(channel):
        share = channel / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
