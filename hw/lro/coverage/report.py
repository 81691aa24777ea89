#!/usr/bin/env python3
"""Reports the coverage of the simulations: report.py FOLDER, to which models built with NICHROME_RTL_COVERAGE=FOLDER have written.

Every line and branch of rtl/ must have run, 98 % of the bits must have changed both ways, and every reason and rotation of
lro_cover.sv must have occurred. The bits that `never` lists are left out: each expression there must match some bits, and none of
them may have changed. A line counts once for all models.
"""
import collections
import fnmatch
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
LEAST_TOGGLES = 98  # percent
EVENTS = ("lro_cover.sv", re.compile(r"(flushes|passes|drops|rotations)\[.*"))
NAMES = {"v_line": "lines", "v_branch": "branches", "v_toggle": "toggles"}


def read(folder):
    """Returns the counts by kind, file, line, column and name, from Verilator's `C 'key^Bvalue^Akey^Bvalue…' count`."""
    counts = collections.defaultdict(int)
    for path in pathlib.Path(folder).glob("*.dat"):
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("C '"):
                words, count = line[3:].rsplit("' ", 1)
                fields = dict(word.split("\x02", 1) for word in words.split("\x01") if word)
                kind = fields["page"].split("/")[0]
                point = (kind, pathlib.Path(fields["f"]).name, int(fields["l"]), int(fields["n"]), fields["o"])
                if point[1] == EVENTS[0] and not EVENTS[1].match(point[4]):
                    continue
                counts[point] = max(counts[point], int(count))
    return counts


def is_covered(point, count):
    return count >= (2 if point[0] == "v_toggle" else 1)


def never(counts):
    """Returns the points that cannot be covered, and the errors in the list."""
    left_out, problems = set(), []
    for line in (FOLDER / "never").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        file, expression, _ = line.split("\t")
        pattern = re.compile(expression)
        found = {
            point
            for point in counts
            if point[0] == "v_toggle" and fnmatch.fnmatch(point[1], file) and pattern.fullmatch(point[4])
        }
        changed = sorted(point[4] for point in found if is_covered(point, counts[point]))
        if not found:
            problems.append(f"never: {file} {expression} names no bit")
        elif changed:
            problems.append(f"never: {file} {', '.join(changed[:5])} has changed")
        left_out |= found
    return left_out, problems


def main():
    counts = read(sys.argv[1])
    if not counts:
        sys.exit(f"report.py: no *.dat in {sys.argv[1]}")
    left_out, problems = never(counts)
    totals, covered, missing = collections.Counter(), collections.Counter(), collections.defaultdict(list)
    for point in sorted(counts.keys() - left_out):
        kind, file, line, _, name = point
        for place in ((kind, file), kind):
            totals[place] += 1
            covered[place] += is_covered(point, counts[point])
        if not is_covered(point, counts[point]):
            missing[file, line, kind].append(name)
    print(f"{'file':20}" + "".join(f"{name:>20}" for name in NAMES.values()))
    for file in sorted({point[1] for point in counts}):
        cells = [f"{covered[kind, file]} of {totals[kind, file]}" for kind in NAMES]
        print(f"{file:20}" + "".join(f"{cell:>20}" for cell in cells))
    for (file, line, kind), names in sorted(missing.items()):
        print(f"not covered: {file}:{line} {NAMES[kind]} {' '.join(names)}"[:150])
        if file == EVENTS[0]:
            problems.append(f"{file}:{line}: {' '.join(names)} did not come")
    for kind, name in NAMES.items():
        percent = 100 * covered[kind] / totals[kind]
        print(f"{name}: {covered[kind]} of {totals[kind]}, {percent:.2f} %")
        least = LEAST_TOGGLES if kind == "v_toggle" else 100
        if percent < least:
            problems.append(f"{name}: at least {least} % must be covered")
    print(f"bits that cannot change, left out: {len(left_out)}")
    print(*problems, sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
