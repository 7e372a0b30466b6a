import json
import os
import sys

arguments = json.load(sys.stdin)
with open(os.environ["TAVERN_OPTIONS"], encoding="utf-8") as file:
    options = json.load(file)
with open(int(os.environ["TAVERN_PROGRESS_FD"]), "w", encoding="utf-8") as progress:
    print(json.dumps({"progress": 0.5, "message": "half of it"}), file=progress)
print("this line is for people", file=sys.stderr)
json.dump({"arguments": arguments, "options": options, "command": sys.argv[1:]}, sys.stdout)
