"""Working days. A wrong date ends the script with a message and the code 2."""

import json
import os
import sys
from datetime import date, timedelta

WEEKENDS = {"sat-sun": (5, 6), "fri-sat": (4, 5)}
MOST_DAYS = 100_000


def parse(text):
    try:
        return date.fromisoformat(text)
    except ValueError:
        print(f"{text} is not a day of the calendar", file=sys.stderr)
        sys.exit(2)


def works_on(day, options):
    return day.weekday() not in WEEKENDS[options["weekend"]] and day.isoformat() not in options["holidays"]


def between(arguments, options):
    first, last = parse(arguments["from"]), parse(arguments["to"])
    length = (last - first).days
    if not 0 <= length <= MOST_DAYS:
        print(f"{first} to {last} is no range of up to {MOST_DAYS} days", file=sys.stderr)
        sys.exit(2)
    days = (first + timedelta(number) for number in range(length))
    return {"days": length, "working": sum(works_on(day, options) for day in days)}


def add(arguments, options):
    day, left = parse(arguments["from"]), arguments["days"]
    while left:
        day += timedelta(1)
        left -= works_on(day, options)
    return {"date": day.isoformat(), "weekday": day.strftime("%A")}


with open(os.environ["TAVERN_OPTIONS"], encoding="utf-8") as file:
    options = json.load(file)
work = {"between": between, "add": add}[sys.argv[1]]
print(json.dumps(work(json.load(sys.stdin), options)))
