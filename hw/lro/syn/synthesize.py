#!/usr/bin/env python3
"""Maps the module to ECP5 with Yosys: synthesize.py FLOWS PAGES OUTPUT.json [TOP]."""
import pathlib
import sys

from pyosys import libyosys

PACKAGES = ["lro_pkg", "lro_types_pkg", "lro_parser_pkg"]


def main():
    flows, pages, output = sys.argv[1:4]
    top = sys.argv[4] if len(sys.argv) > 4 else "lro_board"
    folder = pathlib.Path(__file__).resolve().parent
    rtl = folder.parent / "rtl"
    sources = [rtl / f"{package}.sv" for package in PACKAGES]
    sources += sorted(path for path in rtl.glob("*.sv") if path not in sources)
    sources.append(folder / "lro_board.sv")
    design = libyosys.Design()
    files = " ".join(str(path) for path in sources)
    libyosys.run_pass(f"read_slang --threads 1 --top {top} -G FLOWS={flows} -G PAGES={pages} {files}", design)
    libyosys.run_pass(f"synth_ecp5 -top {top} -json {output}", design)


if __name__ == "__main__":
    main()
