"""Prints how many faulty logs of the families of verdict_families.py are found, and how many healthy ones are accused, by
number of points.

  PLUMBLINE_BIN_DIR=build/dev/bin python3 tests/audit/verdict_power.py FIRST LAST FAMILY...     # seeds, names of functions
"""

import collections
import sys
import tempfile

import ending_families
import part_families
import power_families
import verdict_families
from verdict_families_test import audit, fault_of


def main():
    seeds, names = range(int(sys.argv[1]), int(sys.argv[2])), sys.argv[3:]
    known = verdict_families.FAMILIES + ending_families.FAMILIES + part_families.FAMILIES + power_families.FAMILIES
    seen, right = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in verdict_families.cases(seeds, [f for f in known if f.__name__ in names]):
            row = (case.family, "faulty" if case.faulty else "healthy", case.points)
            seen[row] += 1
            right[row] += not fault_of(case, *audit(folder, case))
    print("| family | | " + " | ".join(f"{points} points" for points in verdict_families.POINTS) + " |")
    for family, kind in sorted({row[:2] for row in seen}):
        cells = []
        for points in verdict_families.POINTS:
            row = (family, kind, points)
            count = right[row] if kind == "faulty" else seen[row] - right[row]
            cells.append(f"{count} of {seen[row]}" if seen[row] else "-")
        print(f"| {family} | {'found' if kind == 'faulty' else 'accused'} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
