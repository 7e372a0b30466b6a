"""Statistics of a text. The command's argument names the statistic."""

import json
import os
import re
import sys
from collections import Counter

WORD = re.compile(r"\w+(?:['’-]\w+)*")
SENTENCE_END = re.compile(r"[.!?…]+(?=\s|$)")
BLANK_LINE = re.compile(r"\n\s*\n")


def count(text, options):
    words = len(WORD.findall(text))
    return {
        "characters": len(text),
        "words": words,
        "sentences": len(SENTENCE_END.findall(text)),
        "paragraphs": sum(1 for part in BLANK_LINE.split(text) if part.strip()),
        "minutes": round(words / options["words_per_minute"], 2),
    }


def frequent(text, options, most):
    words = WORD.findall(text.lower() if options["fold_case"] else text)
    ignored = set(options["ignored_words"])
    counts = Counter(word for word in words if word.lower() not in ignored)
    if not counts:
        sys.exit("the text has no words besides the ignored ones")
    # Words of the same count in the order of the alphabet, so that the answer is always the same.
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [{"word": word, "count": number} for word, number in ordered[:most]]


def main():
    arguments = json.load(sys.stdin)
    with open(os.environ["TAVERN_OPTIONS"], encoding="utf-8") as file:
        options = json.load(file)
    statistic = {"count": count, "frequent": frequent}[sys.argv[1]]
    json.dump(statistic(options=options, **arguments), sys.stdout)


if __name__ == "__main__":
    main()
