import base64
import io
import json
import sys

import segno

given = json.load(sys.stdin)
try:
    code = segno.make(given["text"], error=given["correction"], micro=False)
except segno.DataOverflowError:
    error = {"message": "the text is too long for a QR code; shorten it, or take less correction"}
    print(json.dumps({"success": False, "error": error}))
    sys.exit()
picture = io.BytesIO()
code.save(picture, kind="png", scale=given["scale"])
image = base64.b64encode(picture.getvalue()).decode()
print(json.dumps({"image": image, "modules": code.symbol_size(border=0)[0]}))
