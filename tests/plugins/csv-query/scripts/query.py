"""Answers one query as {"rows", "more"} or {"sum"}."""

import json
import operator
import os
import sys

import harbour

COMPARE = {"=": operator.eq, "<": operator.lt, ">": operator.gt}


def check_column(rows, name):
    if name not in rows[0]:
        raise LookupError(f"there is no column '{name}'; take one of {', '.join(rows[0])}")


def meets(row, condition):
    cell, value = row[condition["column"]], condition["value"]
    if isinstance(cell, str) != isinstance(value, str):
        return False
    return COMPARE[condition["is"]](cell, value)


def query(request, most):
    rows = harbour.rows(request["table"])
    wanted = request.get("columns") or list(rows[0])
    by, summed = request.get("sort"), request.get("sum")
    named = [condition["column"] for condition in request["where"]]
    for name in filter(None, [*wanted, *named, by, summed]):
        check_column(rows, name)
    found = [row for row in rows if all(meets(row, condition) for condition in request["where"])]
    if summed:
        return {"sum": sum(row[summed] for row in found if isinstance(row[summed], int))}
    if by:
        found.sort(key=lambda row: (isinstance(row[by], str), row[by]))
    return {"rows": [[row[name] for name in wanted] for row in found[:most]], "more": len(found) > most}


with open(os.environ["TAVERN_OPTIONS"], encoding="utf-8") as file:
    most = json.load(file)["most_rows"]
try:
    print(json.dumps(query(json.load(sys.stdin), most)))
except LookupError as error:
    print(json.dumps({"success": False, "error": {"message": str(error)}}))
