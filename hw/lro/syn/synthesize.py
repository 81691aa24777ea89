#!/usr/bin/env python3
"""Maps the module to ECP5 with Yosys: synthesize.py FLOWS PAGES OUTPUT.json|OUTPUT.v [DATA_W].

JSON is for place and route, with the pins of `lro_board.sv`. Verilog is for simulation, without these pins and with unmapped memories.

Yosys leaves the flip-flops behind a block memory in the fabric. This program moves them into the memory's output register, which
halves its clock-to-output time.
"""
import collections
import json
import pathlib
import sys

from pyosys import libyosys

FOLDER = pathlib.Path(__file__).resolve().parent
RTL = FOLDER.parent / "rtl"
PACKAGES = ["lro_pkg", "lro_types_pkg", "lro_parser_pkg"]


def plain_register(cell, clock):
    """Returns true if a flip-flop only delays: it has neither enable nor set or reset."""
    pins = cell["connections"]
    plain = pins.get("LSR", ["0"]) == ["0"] and pins.get("CE", ["1"]) == ["1"]
    return cell["type"] == "TRELLIS_FF" and plain and pins["CLK"] == clock


def use_output_registers(cells):
    """Moves registers into the memories whose port B they follow. Memories of 36 bits, which read by both ports, are left alone."""
    readers = collections.defaultdict(list)
    for name, cell in cells.items():
        for pin, bits in cell["connections"].items():
            if cell["port_directions"][pin] == "input":
                for bit in bits:
                    readers[bit].append((name, pin))

    def register_behind(bit, clock):
        """Returns the flip-flop that is the only reader of a bit, or None."""
        name, pin = readers[bit][0]
        return name if len(readers[bit]) == 1 and pin == "DI" and plain_register(cells[name], clock) else None

    moved = 0
    for memory in [cell for cell in cells.values() if cell["type"] == "DP16KD"]:
        pins = memory["connections"]
        read = [pin for pin in pins if pin.startswith(("DOA", "DOB")) and readers[pins[pin][0]]]
        behind = {pin: register_behind(pins[pin][0], pins["CLKB"]) for pin in read}
        enabled = pins["OCEB"] == ["1"] and pins["RSTB"] == ["0"]
        if not enabled or None in behind.values() or any(pin.startswith("DOA") for pin in read):
            continue
        memory["parameters"]["REGMODE_B"] = "OUTREG"
        for pin, register in behind.items():
            pins[pin] = cells.pop(register)["connections"]["Q"]
            moved += 1
    return moved


def sources():
    """Returns the files for Yosys, packages first."""
    packages = [RTL / f"{package}.sv" for package in PACKAGES]
    rest = sorted(path for path in RTL.glob("*.sv") if path not in packages)
    return [*packages, *rest, FOLDER / "lro_board.sv"]


def read(design, top, flows, pages, width, *options):
    files = " ".join(str(path) for path in sources())
    parameters = f"-G FLOWS={flows} -G PAGES={pages} -G DATA_W={width}"
    libyosys.run_pass(f"read_slang --threads 1 --top {top} {' '.join(options)} {parameters} {files}", design)


def for_place_and_route(flows, pages, width, output):
    top = "lro_board"
    design = libyosys.Design()
    read(design, top, flows, pages, width)
    libyosys.run_pass(f"synth_ecp5 -top {top} -json {output}", design)
    netlist = json.loads(pathlib.Path(output).read_text())
    print("flip-flops moved into memories:", use_output_registers(netlist["modules"][top]["cells"]))
    pathlib.Path(output).write_text(json.dumps(netlist))


def for_simulation(flows, pages, width, output):
    design = libyosys.Design()
    read(design, "lro", flows, pages, width, "--blackboxed-module lro_ram")
    # Slang's black box has no parameters, but its instances have them, including the local ones.
    libyosys.run_pass("setparam -unset BITS -unset FIRST -unset SLICES -unset SLICE_W -unset i t:lro_ram", design)
    libyosys.run_pass("delete =lro_ram", design)
    libyosys.run_pass(f"read_verilog -sv -lib {RTL / 'lro_ram.sv'}", design)
    libyosys.run_pass("synth_ecp5 -top lro", design)
    libyosys.run_pass(f"write_verilog -noattr {output}", design)


def main():
    flows, pages, output, width = (sys.argv[1:] + ["64"])[:4]
    write = for_simulation if output.endswith(".v") else for_place_and_route
    write(flows, pages, width, output)


if __name__ == "__main__":
    main()
