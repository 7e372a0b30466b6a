import json
import sys

picture = json.load(sys.stdin)["picture"]
HOSTILE = (
    '<script>parent.document.title = "taken"</script><style>@import url(https://evil.example/a.css);</style>'
    '<img src="https://evil.example/a.png" onerror="alert(1)"><link rel="stylesheet" href="https://evil.example/b.css">'
    '<iframe src="https://evil.example/"></iframe><form action="https://evil.example/"><button>Send</button></form>'
    '<meta http-equiv="refresh" content="0; url=https://evil.example/">'
)
TABLE = (
    f'{HOSTILE}<table border="1" class="dataframe" style="background: url(https://evil.example/c.png)"><thead><tr>'
    '<th>month</th><th>sum</th></tr></thead><tbody><tr onclick="alert(1)"><td>Jan</td><td>10</td></tr>'
    '<tr><td><a href="javascript:alert(1)">Feb</a></td><td>12</td></tr></tbody></table>'
)
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 200 100"'
    ' onload="alert(1)"><script>alert(1)</script><style>* { fill: red }</style>'
    '<defs><path id="bar" d="M 0 0 h 40 v 60 h -40 z"/></defs>'
    '<use xlink:href="#bar" x="20" y="20" style="fill: #1f77b4; stroke: none"/>'
    '<image xlink:href="https://evil.example/d.png" width="10" height="10"/>'
    '<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><script>alert(1)</script></body></foreignObject>'
    '<text x="80" y="50" style="font-size: 12px">A drawing</text></svg>'
)
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def result(index, **data):
    return {"index": index, "origin": "display", "main": False, "data": data, "metadata": {}}


kept = {"$blob": "sha256:" + "0" * 64, "bytes": 100, "path": picture}
output = {
    "stdout": "12 rows\n",
    "stderr": "",
    "cell": 1,
    "results": [
        result(0, **{"image/png": kept, "text/plain": "<Figure>"}),
        result(1, **{"text/html": TABLE, "text/markdown": "| month |", "text/plain": "month"}),
        result(2, **{"image/svg+xml": DRAWING, "text/plain": "a drawing"}),
        result(3, **{"text/markdown": "| month | sum |\n|--|--|\n| Jan | 10 |", "text/plain": "never"}),
        result(4, **{"text/latex": "$\\frac{1}{2}$"}),
        result(5, **{"text/plain": "<b>plain</b>"}),
        result(6, **{"image/png": DOT}),
        result(7, **{"application/x-unknown": {"$blob": "sha256:" + "0" * 64, "bytes": 2048}}),
        result(8),
    ],
    "files": [
        {"path": "out/report.csv", "change": "created", "bytes": 812, "digest": "sha256:0", "media_type": "text/csv"},
        {"path": "old.csv", "change": "removed", "bytes": 0, "digest": "", "media_type": "text/csv"},
        {"path": "a.csv", "change": "conflict", "bytes": 1, "media_type": "text/csv", "kept_as": "a (cell 4).csv"},
    ],
}
print(json.dumps({"status": "success", "result": output}))
