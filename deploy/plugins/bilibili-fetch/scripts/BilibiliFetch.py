"""Gives the subtitles of a Bilibili video from the file that comes with the plugin.

Reads {"url": ...} from standard input and writes {"success", "outputData" | "error", "logs"}.
"""

import json
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

HOSTS = ("bilibili.com", "b23.tv")
BV_NUMBER = re.compile(r"BV[1-9A-HJ-NP-Za-km-z]{10}")
SUBTITLES = Path(__file__).resolve().parent.parent / "data" / "subtitles.json"


class Refused(Exception):
    """The request cannot be answered; the message says what to do."""


def bv_number(text):
    """Returns the BV number of a video's address, or of a bare number."""
    text = text.strip()
    if "/" in text:
        address = urlsplit(text if "://" in text else "https://" + text)
        host = (address.hostname or "").lower()
        if not any(host == name or host.endswith("." + name) for name in HOSTS):
            raise Refused(f"'{text}' is no address of Bilibili; give a video's address or its BV number")
        text = next((part for part in address.path.split("/") if BV_NUMBER.fullmatch(part)), "")
    if not BV_NUMBER.fullmatch(text):
        raise Refused("there is no BV number; one looks like BV1xx411c7mD")
    return text


def timecode(seconds):
    """Writes seconds as 00:01:02.500."""
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}.{milliseconds % 1000:03}"


def subtitles_of(number):
    """Returns what is known of a video."""
    videos = json.loads(SUBTITLES.read_text(encoding="utf-8"))
    if number not in videos:
        known = ", ".join(sorted(videos))
        raise Refused(f"no subtitles are bundled for {number}; there are some for {known}")
    video = videos[number]
    lines = [
        {"from": timecode(line["from"]), "to": timecode(line["to"]), "content": line["content"]}
        for line in video["body"]
    ]
    return {
        "bvid": number,
        "title": video["title"],
        "language": video["lan"],
        "subtitles": lines,
        "text": "\n".join(line["content"] for line in lines),
    }


def main():
    url = json.load(sys.stdin)["url"]
    try:
        number = bv_number(url)
        answer = {"success": True, "outputData": subtitles_of(number), "logs": [f"subtitles of {number} read"]}
    except Refused as refused:
        answer = {"success": False, "error": {"type": "ScriptError", "message": str(refused)}}
    json.dump(answer, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
