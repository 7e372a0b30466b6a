"""Replaces e-mail addresses in the output of a call: reads the act, writes a decision."""

import json
import re
import sys

ADDRESS = re.compile(r"[\w.+%-]+@(?:[\w-]+\.)+[^\W\d_]{2,}")
MASK = "[e-mail address]"


def mask(value):
    if isinstance(value, str):
        return ADDRESS.sub(MASK, value)
    if isinstance(value, list):
        return [mask(item) for item in value]
    if isinstance(value, dict):
        return {mask(key): mask(item) for key, item in value.items()}
    return value


output = json.load(sys.stdin)["result"]["output"]
masked = mask(output)
decision = {"action": "continue"}
if masked != output:
    change = {"op": "replace", "path": "/result/output", "value": masked}
    decision = {"action": "replace", "patch": [change], "reason": "addresses are masked"}
print(json.dumps(decision))
