#!/usr/bin/env python3
"""Lines and toggles of the RTL that the tests reach: coverage.py FOLDER, which has the files of cosim with NICHROME_RTL_COVERAGE.

Fails below all lines and 98 % of the toggles. `coverage.exceptions` has the points that nothing can reach, with the reason.
"""
import collections
import pathlib
import re
import sys

TOGGLES = 0.98
EXCEPTIONS = pathlib.Path(__file__).resolve().with_name("coverage.exceptions")


def points(folder):
    """How often each point was reached: by file, line, kind and name, over all instances."""
    counts = collections.Counter()
    for path in sorted(folder.glob("*.dat")):
        for line in path.read_text(errors="replace").splitlines():
            found = re.fullmatch(r"C '(.*)' (\d+)", line)
            if not found:
                continue
            fields = dict(field.split("\x02", 1) for field in found[1].split("\x01") if field)
            kind = fields["page"].split("/")[0].removeprefix("v_")
            counts[pathlib.Path(fields["f"]).name, int(fields["l"]), kind, fields["o"]] += int(found[2])
    return counts


def exceptions():
    """File, name of the signal or text of the line, reason, with tabs between."""
    lines = EXCEPTIONS.read_text().splitlines() if EXCEPTIONS.exists() else []
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def main():
    counts = points(pathlib.Path(sys.argv[1]))
    known = [(file, re.compile(name)) for file, name, _ in exceptions()]
    ratios = {}
    for kind in sorted({kind for _, _, kind, _ in counts}):
        relevant = {
            point: count
            for point, count in counts.items()
            if point[2] == kind and not any(point[0] == file and name.fullmatch(point[3]) for file, name in known)
        }
        missed = sorted(point for point, count in relevant.items() if count == 0)
        ratios[kind] = 1 - len(missed) / len(relevant)
        print(f"{kind}: {len(relevant) - len(missed)} of {len(relevant)}, {100 * ratios[kind]:.2f} %")
        for file, line, _, name in missed:
            print(f"  {file}:{line}: {name}")
    wanted = {kind: TOGGLES if kind == "toggle" else 1 for kind in ratios}
    sys.exit(not ratios or any(ratios[kind] < wanted[kind] for kind in ratios))


if __name__ == "__main__":
    main()
