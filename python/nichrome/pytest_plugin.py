"""Fixtures for pytest: ``wan``, two hosts and a path for each test, and ``rdma_device``. Tests can run in parallel with
pytest-xdist. Works with pytest 6.2 and later.

The packets of a failing test are kept in the folder ``--nichrome-captures`` (``nichrome-captures``): ``NAME.pcapng`` for a path,
``NAME-rdma-PROCESS.pcapng`` for each program with a device.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any, Dict, Generator, Iterator

import pytest

from nichrome import rdma as _rdma
from nichrome import wan as _wan

#: The attribute that marks a failed test. pytest 6 has no stash.
_FAILED = "_nichrome_failed"

#: Maximum number of characters of a test's name in a capture's file name: file names have at most 255 bytes, with suffixes.
_LONGEST = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option for captures."""
    parser.getgroup("nichrome").addoption(
        "--nichrome-captures", default="nichrome-captures", metavar="DIR", help="where failing tests keep their packets"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks."""
    config.addinivalue_line("markers", "wan(**impairments): impairments of the path of the fixture wan, named as the options of nichrome wan")
    config.addinivalue_line("markers", "rdma_device(**options): options of nichrome rdma run for the fixture rdma_device")


# pluggy 1.0 has no hookimpl(wrapper=True).
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Records that a test has failed, before its fixtures end."""
    outcome = yield
    report = outcome.get_result()
    # Set-up resets the mark: pytest-rerunfailures runs a test again.
    if report.failed or report.when == "setup":
        setattr(item, _FAILED, report.failed)


def _options(request: pytest.FixtureRequest, mark: str) -> Dict[str, Any]:
    marks = list(request.node.iter_markers(mark))
    # The closest mark comes first, and takes precedence.
    return {name: value for found in reversed(marks) for name, value in found.kwargs.items()}


def _keep_if_failed(request: pytest.FixtureRequest, capture: Path, suffix: str = "") -> None:
    if getattr(request.node, _FAILED, False) and capture.exists():
        folder = Path(request.config.rootpath, request.config.getoption("--nichrome-captures"))
        os.makedirs(folder, exist_ok=True)
        shutil.move(str(capture), str(folder / f"{_file_name(request.node.nodeid)}{suffix}.pcapng"))


def _file_name(test: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", test)
    if len(name) <= _LONGEST:
        return name
    # Parameters may be long strings: a hash keeps truncated names distinct.
    return f"{name[:_LONGEST]}-{hashlib.sha256(test.encode(errors='replace')).hexdigest()[:8]}"


@pytest.fixture
def wan(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_wan.Path]:
    """Two hosts and a path, with the impairments of ``@pytest.mark.wan(delay="20ms")``."""
    capture = tmp_path / "wan.pcapng"
    try:
        with _wan.Path(capture=capture, **_options(request, "wan")) as path:
            yield path
    except Exception:
        # The path failed, not the test.
        setattr(request.node, _FAILED, True)
        raise
    finally:
        _keep_if_failed(request, capture)


@pytest.fixture
def rdma_device(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dict[str, str]]:
    """The environment of a program that finds the device ``nichrome0``; options from ``@pytest.mark.rdma_device``."""
    # The command replaces %p by the process ID.
    yield _rdma.environment(capture=str(tmp_path / "rdma-%p.pcapng"), **_options(request, "rdma_device"))
    for capture in sorted(tmp_path.glob("rdma-*.pcapng")):
        _keep_if_failed(request, capture, "-" + capture.stem)
