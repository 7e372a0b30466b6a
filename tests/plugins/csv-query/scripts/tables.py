import json

import harbour

print(json.dumps({name: list(harbour.rows(name)[0]) for name in harbour.names()}))
