"""Prints how long the tests of each crate took, from the JUnit file of cargo-nextest."""

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict


def main() -> None:
    seconds: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    root = ElementTree.parse(sys.argv[1]).getroot()
    for suite in root.iter("testsuite"):
        crate = suite.get("name", "").split("::")[0]
        for case in suite.iter("testcase"):
            seconds[crate] += float(case.get("time", 0))
            counts[crate] += 1
    print("crate                 tests  seconds")
    for crate in sorted(seconds, key=seconds.__getitem__, reverse=True):
        print(f"{crate:<20} {counts[crate]:>6} {seconds[crate]:>8.1f}")
    print(f"{'all':<20} {sum(counts.values()):>6} {sum(seconds.values()):>8.1f}")
    print(f"wall clock           {float(root.get('time', 0)):>15.1f}")


if __name__ == "__main__":
    main()
