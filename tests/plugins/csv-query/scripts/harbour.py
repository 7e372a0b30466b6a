"""The tables beside the scripts. A cell that looks like a whole number is one."""

import csv
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"


def names():
    return sorted(file.stem for file in DATA.glob("*.csv"))


def value_of(cell):
    return int(cell) if cell.isdecimal() else cell


def rows(table):
    if table not in names():
        raise LookupError(f"there is no table '{table}'; take one of {', '.join(names())}")
    with open(DATA / f"{table}.csv", newline="", encoding="utf-8") as file:
        return [{key: value_of(cell) for key, cell in row.items()} for row in csv.DictReader(file)]
