"""Adds the unit of the options to the inputs of a workflow."""

import json
import sys

act = json.load(sys.stdin)
unit = act["options"]["unit"]
change = {"op": "add", "path": "/run/inputs/unit", "value": unit}
print(json.dumps({"action": "replace", "patch": [change], "reason": "the unit of the user"}))
