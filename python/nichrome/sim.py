"""The simulator: experiments of papers, and sweeps over their parameters."""

from __future__ import annotations

import json
import numbers
import os
import shlex
import subprocess
import tempfile
from concurrent.futures import Executor, wait
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Union

from nichrome._command import NichromeError, command, options, run_json, word
from nichrome._command import run as _command

if TYPE_CHECKING:
    import pandas

__all__ = ["experiments", "points", "records", "run", "sweep", "sweep_records", "tasks"]

Value = Union[str, int, float, bool]


def experiments() -> List[Dict[str, Any]]:
    """Returns the built-in experiments: name, title, paper, number of runs."""
    return list(run_json(["sim", "list", "--json"]))


def points(
    experiment: str, *, seed: Optional[int] = None, jobs: Optional[int] = None, set: Optional[Mapping[str, Value]] = None
) -> List[Dict[str, Any]]:
    """Runs an experiment and returns its points: series, x, value, unit, and the paper's number if there is one.

    Args:
        experiment: A built-in experiment's name, or a TOML file's.
        seed: Of all random choices; by default the experiment's.
        jobs: Runs at a time; by default one a processor.
        set: Parameters, such as ``{"dma-start": "5us"}``.
    """
    settings = [f"--set={key}={word(value)}" for key, value in (set or {}).items()]
    done = run_json(["sim", "run", "--json", *options({"seed": seed, "jobs": jobs}), *settings, "--", experiment])
    return list(done["points"])


def run(experiment: str, **given: Any) -> pandas.DataFrame:
    """Runs an experiment as :func:`points` does, and returns a DataFrame. Needs pandas."""
    import pandas

    frame: pandas.DataFrame = pandas.DataFrame(points(experiment, **given))
    return frame


def sweep_records(
    experiment: str,
    parameters: Mapping[str, Sequence[Value]],
    *,
    seeds: Sequence[int] = (1,),
    store: Optional[Union[str, os.PathLike[str]]] = None,
    executor: Optional[Executor] = None,
) -> List[Dict[str, Any]]:
    """Runs an experiment with lists of parameter values and seeds, and returns the record of each run.

    Args:
        experiment: A built-in experiment's name, or a TOML file's.
        parameters: A list of values for each parameter.
        seeds: The seeds of each combination.
        store: The folder of results; by default a temporary one. A run whose result is in the folder is not repeated.
        executor: Runs each run as one task: any ``concurrent.futures`` executor whose workers have this package and see ``store``,
            such as a ``ProcessPoolExecutor``, that of a Dask client, or mpi4py's ``MPIPoolExecutor``. By default the command
            itself uses all processors.
    """
    with tempfile.TemporaryDirectory(prefix="nichrome-sweep-") as folder:
        kept = os.path.abspath(os.fspath(store)) if store is not None else os.path.join(folder, "store")
        if executor is not None:
            _run_tasks(executor, tasks(experiment, parameters, seeds=seeds, store=kept))
        # Runs the tasks whose results are missing, and prints all records.
        lines = _with_sweep_file(["sim", "sweep", "--json", "--store", kept], experiment, parameters, seeds)
        return [json.loads(line) for line in lines.splitlines()]


def tasks(
    experiment: str,
    parameters: Mapping[str, Sequence[Value]],
    *,
    store: Union[str, os.PathLike[str]],
    seeds: Sequence[int] = (1,),
) -> List[List[str]]:
    """Returns the command line of each run of a sweep that ``store`` lacks, for schedulers such as HyperQueue.

    Each run writes its record to ``store``, which all workers must share; :func:`records` reads them.
    """
    kept = os.path.abspath(os.fspath(store))
    os.makedirs(kept, exist_ok=True)
    lines = _with_sweep_file(["sim", "tasks", "--store", kept], experiment, parameters, seeds).splitlines()
    return [shlex.split(line) for line in lines]


def records(store: Union[str, os.PathLike[str]]) -> List[Dict[str, Any]]:
    """Returns the records of all runs in a folder of results, in the order of their files' names.

    Raises:
        OSError: The folder cannot be read.
    """

    def fail(error: OSError) -> None:
        raise error

    found = []
    for folder, _, names in sorted(os.walk(store, onerror=fail)):
        for name in sorted(names):
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found.append(json.load(file))
    return found


def sweep(experiment: str, parameters: Mapping[str, Sequence[Value]], **given: Any) -> pandas.DataFrame:
    """Runs a sweep as :func:`sweep_records` does, and returns a DataFrame: seed, ``parameters.*``, ``metrics.*``. Needs pandas."""
    import pandas

    frame: pandas.DataFrame = pandas.json_normalize(sweep_records(experiment, parameters, **given))
    return frame


def _run_tasks(executor: Executor, lines: List[List[str]]) -> None:
    """Runs the tasks. After an error, starts no more and waits for those that run, because their store may be temporary."""
    futures = [executor.submit(_run_task, words) for words in lines]
    try:
        for future in futures:
            future.result()
    finally:
        wait([future for future in futures if not future.cancel()])


def _run_task(words: List[str]) -> None:
    """Runs one task. Called in an executor's worker, whose command may have another path than the caller's."""
    done = subprocess.run([command(), *words[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise NichromeError(done.stderr.strip())


def _with_sweep_file(
    words: List[str], experiment: str, parameters: Mapping[str, Sequence[Value]], seeds: Sequence[int]
) -> str:
    """Runs a command whose last argument is the sweep's file, and returns what it prints."""
    with tempfile.TemporaryDirectory(prefix="nichrome-sweep-") as folder:
        file = os.path.join(folder, "sweep.toml")
        with open(file, "w", encoding="utf-8") as out:
            out.write(_sweep_file(experiment, parameters, seeds))
        return _command([*words, file])


def _sweep_file(experiment: str, parameters: Mapping[str, Sequence[Value]], seeds: Sequence[int]) -> str:
    name = os.path.abspath(experiment) if experiment.endswith(".toml") else experiment
    for key, values in parameters.items():
        # A string would pass as a sequence of its characters.
        if isinstance(values, str):
            raise TypeError(f"{key} needs a list of values, such as [{values!r}]")
    lines = [f"experiment = {_toml(name)}", f"seeds = {_toml(list(seeds))}", "[sweep]"]
    lines += [f"{_toml(key)} = {_toml(list(values))}" for key, values in parameters.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    # NumPy's numbers are Numbers, too.
    if isinstance(value, numbers.Number) and not isinstance(value, bool):
        return word(value)
    # JSON's strings are valid TOML, except escapes of characters beyond U+FFFF and a bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
