import json
import sys

from colour import parse

arguments = json.load(sys.stdin)
try:
    first, second = parse(arguments["first"]), parse(arguments["second"])
except ValueError as error:
    json.dump({"status": "error", "error": str(error)}, sys.stdout)
    sys.exit(1)
share = arguments["share"]
mixed = (round(a + (b - a) * share) for a, b in zip(first, second))
json.dump({"status": "success", "result": "#" + "".join(f"{channel:02x}" for channel in mixed)}, sys.stdout)
