"""RDMA devices in software for other programs, without RDMA hardware, kernel module or root."""

from __future__ import annotations

import os
import subprocess
from typing import Any, Dict, List, Sequence

from nichrome._command import command, options, run_bytes

__all__ = ["environment", "popen", "run_program"]


def environment(**given: Any) -> Dict[str, str]:
    """Returns the environment in which a program finds the device ``nichrome0``: this one's, with some variables added.

    Args:
        **given: Options of ``nichrome rdma run``: ``ip="192.0.2.7"``, ``loss="1%"``, ``capture="rdma.pcapng"``.

    Example::

        subprocess.run(["ibv_devinfo"], env=nichrome.rdma.environment(), check=True)
    """
    printed = run_bytes(["rdma", "run", *options(given), "--", "/usr/bin/env", "-0"])
    return dict(os.fsdecode(entry).split("=", 1) for entry in printed.split(b"\0") if b"=" in entry)


def _line(arguments: Sequence[str], given: Dict[str, Any]) -> List[str]:
    return [command(), "rdma", "run", *options(given), "--", *map(os.fspath, arguments)]


def run_program(arguments: Sequence[str], device: Dict[str, Any] = {}, **given: Any) -> subprocess.CompletedProcess[Any]:
    """Runs a program on a device, as ``subprocess.run`` does. ``device`` has options of ``nichrome rdma run``."""
    return subprocess.run(_line(arguments, device), **given)


def popen(arguments: Sequence[str], device: Dict[str, Any] = {}, **given: Any) -> subprocess.Popen[Any]:
    """Starts a program on a device, as ``subprocess.Popen`` does. ``device`` has options of ``nichrome rdma run``."""
    return subprocess.Popen(_line(arguments, device), **given)
