"""Writes a letter: template, options and values in, text out."""

import json
import os
import sys
import textwrap
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from string import Template

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
SALUTATIONS = {
    ("en", True): "Dear $recipient,",
    ("en", False): "Hello $recipient,",
    ("de", True): "Guten Tag $recipient,",
    ("de", False): "Hallo $recipient,",
}


def amounts(net, rate):
    """The amounts of an invoice as text, rounded to cents."""
    net = Decimal(str(net))
    tax = (net * Decimal(str(rate))).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return {"net": f"{net:.2f}", "tax": f"{tax:.2f}", "gross": f"{net + tax:.2f}"}


def letter(arguments, options):
    language = options["language"]
    values = dict(arguments.get("values", {}))
    if "net" in values:
        values.update(amounts(values["net"], options["tax_rate"]))
    file = TEMPLATES / f"{arguments['template']}.{language}.txt"
    body = Template(file.read_text(encoding="utf-8")).substitute(values).strip()
    salutation = SALUTATIONS[language, options["formal"]]
    parts = [
        options["places"].get(language, ""),
        Template(salutation).substitute(recipient=arguments["recipient"]),
        textwrap.fill(body, options["line_width"]),
        options["sender"],
        options["footer"],
        ", ".join(f"cc: {name}" for name in options["copies"]),
    ]
    return "\n\n".join(part for part in parts if part)


def main():
    arguments = json.load(sys.stdin)
    options = json.loads(Path(os.environ["TAVERN_OPTIONS"]).read_text(encoding="utf-8"))
    try:
        answer = {"success": True, "outputData": letter(arguments, options)}
    except KeyError as missing:
        message = f"the template {arguments['template']} needs the value {missing}"
        answer = {"success": False, "error": {"type": "ScriptError", "message": message}}
    json.dump(answer, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
