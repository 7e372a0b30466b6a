"""Converts one picture: {"picture", "format", "largest_side"?} in, {"picture", "width", "height"} out."""

import base64
import binascii
import io
import json
import sys

from PIL import Image, UnidentifiedImageError

# A small file can hold a huge picture; a larger one is refused when it is opened.
MOST_PIXELS = 16_000_000
# Formats without transparency.
OPAQUE = {"jpeg", "bmp", "ppm"}


class Refused(Exception):
    """The picture cannot be converted."""


def read(text):
    try:
        picture = Image.open(io.BytesIO(base64.b64decode(text, validate=True)))
        if picture.width * picture.height > MOST_PIXELS:
            raise Refused(f"the picture has more than {MOST_PIXELS} pixels")
        picture.load()
    except binascii.Error as error:
        raise Refused(f"the picture is no Base64: {error}") from error
    except UnidentifiedImageError as error:
        raise Refused("the picture is of no known format") from error
    except OSError as error:
        raise Refused(f"the picture is damaged: {error}") from error
    return picture


def convert(request):
    picture = read(request["picture"])
    if "largest_side" in request:
        picture.thumbnail((request["largest_side"], request["largest_side"]))
    if request["format"] in OPAQUE:
        picture = picture.convert("RGB")
    out = io.BytesIO()
    picture.save(out, format=request["format"])
    return {
        "picture": base64.b64encode(out.getvalue()).decode(),
        "width": picture.width,
        "height": picture.height,
    }


if __name__ == "__main__":
    try:
        answer = {"success": True, "outputData": convert(json.load(sys.stdin))}
    except Refused as refused:
        answer = {"success": False, "error": {"type": "ScriptError", "message": str(refused)}}
    json.dump(answer, sys.stdout)
