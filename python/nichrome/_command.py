"""Finds and runs the ``nichrome`` command."""

from __future__ import annotations

import decimal
import json
import numbers
import os
import shutil
import subprocess
import sysconfig
from typing import Any, Dict, Iterable, List, Optional

#: Names another ``nichrome`` command to use.
VARIABLE = "NICHROME_COMMAND"


class NichromeError(Exception):
    """A command failed. The message is its standard error."""


def command() -> str:
    """Returns the path of the command: ``$NICHROME_COMMAND``, else that of this Python environment, of the user's own packages,
    or in ``PATH``.

    Raises:
        NichromeError: There is none.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return chosen
    # 'pip install --user' places it in the second folder.
    folders = sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")
    found = shutil.which("nichrome", path=os.pathsep.join(folders)) or shutil.which("nichrome")
    if found is None:
        raise NichromeError("there is no nichrome command: install the package's wheel, or set NICHROME_COMMAND")
    return found


def run_bytes(arguments: Iterable[str], env: Optional[Dict[str, str]] = None) -> bytes:
    """Runs the command and returns its standard output.

    Raises:
        NichromeError: The exit status is not 0.
    """
    done = subprocess.run([command(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, env=env)
    if done.returncode != 0:
        raise NichromeError(done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}")
    return done.stdout


def run(arguments: Iterable[str], env: Optional[Dict[str, str]] = None) -> str:
    """Runs the command and returns its standard output as text."""
    return run_bytes(arguments, env).decode()


def run_json(arguments: Iterable[str]) -> Any:
    """Runs the command, which prints JSON, and returns the parsed value."""
    return json.loads(run(arguments))


def options(given: Dict[str, Any]) -> List[str]:
    """Returns command line options: ``jitter_order="keep"`` is ``--jitter-order=keep``; true is the option alone, ``None`` and
    false leave it out; a list or tuple repeats it with each element."""
    words = []
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            elements = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{option}={word(element)}" for element in elements]
    return words


def word(value: Any) -> str:
    """Returns a value as the command reads it: numbers have no exponent, and truth values are lower-case."""
    if isinstance(value, bool):
        return str(value).lower()
    is_float = isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational)
    return format(decimal.Decimal(str(value)), "f") if is_float or isinstance(value, decimal.Decimal) else str(value)
