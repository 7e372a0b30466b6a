"""Reads a value from the world state that comes with the plugin (seed 002 section 5.1).

Reads {"path", "default_value"?} from standard input. A value that is found is written as it is, as
bare JSON; one that is not, and without a default, is a failure.
"""

import json
import sys
from pathlib import Path

WORLD = Path(__file__).resolve().parent.parent / "data" / "world.json"


def find(value, path):
    """Follows a dot-separated path. Returns (True, value), or (False, the part that is not there)."""
    for part in path.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return False, part
    return True, value


def main():
    arguments = json.load(sys.stdin)
    found, value = find(json.loads(WORLD.read_text(encoding="utf-8")), arguments["path"])
    if found:
        answer = value
    elif "default_value" in arguments:
        answer = arguments["default_value"]
    else:
        message = f"the world state has no '{value}' at '{arguments['path']}'; give a default_value or another path"
        answer = {"success": False, "error": {"type": "ScriptError", "message": message}}
    json.dump(answer, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
