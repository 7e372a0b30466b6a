import json
import os
import sys

from colour import luminance, parse

LEAST = {("AA", False): 4.5, ("AA", True): 3, ("AAA", False): 7, ("AAA", True): 4.5}

arguments = json.load(sys.stdin)
with open(os.environ["TAVERN_OPTIONS"], encoding="utf-8") as file:
    level = json.load(file)["level"]
darker, lighter = sorted(luminance(parse(arguments[key])) for key in ("text", "background"))
contrast = (lighter + 0.05) / (darker + 0.05)
least = LEAST[level, arguments["is_large"]]
json.dump({"contrast": round(contrast, 2), "level": level, "passes": contrast >= least}, sys.stdout)
