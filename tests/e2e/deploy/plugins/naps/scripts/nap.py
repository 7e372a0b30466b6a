import json
import subprocess
import sys

asked = json.load(sys.stdin)
subprocess.run(["sh", "-c", f"sleep {asked['seconds']}; true"], check=True)
print(json.dumps({"status": "success", "result": "slept"}))
