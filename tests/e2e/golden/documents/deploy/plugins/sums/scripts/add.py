"""Adds two numbers."""

import json
import sys

asked = json.load(sys.stdin)
print(json.dumps({"status": "success", "result": asked["a"] + asked["b"]}))
