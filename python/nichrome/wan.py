"""Wide-area paths between two hosts on this machine, without root."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from types import TracebackType
from typing import Any, Dict, IO, List, Optional, Sequence, Type, Union

from nichrome._command import NichromeError, command, options, run, run_json

__all__ = ["Host", "Path"]

#: How long a path may take to start, in seconds.
_UNTIL_UP = 30.0


class Host:
    """A host at one end of a path. Programs on it have one interface and the loopback interface."""

    def __init__(self, path: Path, side: str, address: str) -> None:
        self._path = path
        #: ``left`` or ``right``.
        self.side = side
        #: The host's IPv4 address.
        self.address = address

    def command(self, arguments: Sequence[str]) -> List[str]:
        """Returns the command line that runs a program on this host."""
        return [command(), "wan", "exec", "--run", str(self._path.pid), self.side, "--", *arguments]

    def popen(self, arguments: Sequence[str], **given: Any) -> subprocess.Popen[Any]:
        """Starts a program on this host, as ``subprocess.Popen`` does. It ends with the path."""
        process = subprocess.Popen(self.command(arguments), **given)
        self._path._started.append(process)
        return process

    def run(self, arguments: Sequence[str], **given: Any) -> subprocess.CompletedProcess[Any]:
        """Runs a program on this host, as ``subprocess.run`` does."""
        return subprocess.run(self.command(arguments), **given)

    def wait_for_port(self, port: int, timeout: float = 10.0) -> None:
        """Waits until a program on this host listens at a TCP port.

        Raises:
            TimeoutError: No program listens in time.
        """
        end = time.monotonic() + timeout
        # Column 2 is the local address, column 4 the state: 0A is LISTEN (proc_net_tcp(5)).
        pattern = f"^ *[0-9]+: [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A "
        while self.run(["grep", "-qE", pattern, "/proc/self/net/tcp", "/proc/self/net/tcp6"]).returncode != 0:
            if time.monotonic() > end:
                raise TimeoutError(f"no program listens at port {port} of the {self.side} host")
            time.sleep(0.02)


class Path:
    """A path between two hosts, for as long as the ``with`` block runs.

    Args:
        capture: The pcapng file that records every packet at both ends.
        seed: Of all random choices; by default different every time.
        **impairments: Options of ``nichrome wan``: ``delay="40ms"``, ``loss="1%"``, ``rate="10mbit"``.

    Example::

        with nichrome.wan.Path(delay="20ms") as path:
            path.right.run(["ping", "-c", "1", path.left.address], check=True)
            path.set(loss="2%")
    """

    def __init__(
        self, *, capture: Optional[Union[str, os.PathLike[str]]] = None, seed: Optional[int] = None, **impairments: Any
    ) -> None:
        file = os.fspath(capture) if capture is not None else None
        self._options = options({"capture": file, "seed": seed, **impairments})
        self._process: Optional[subprocess.Popen[str]] = None
        self._messages: List[str] = []
        self._started: List[subprocess.Popen[Any]] = []
        #: The summary of ``nichrome wan --json``; set after the block.
        self.summary: Optional[Dict[str, Any]] = None
        #: The left host, usually for servers.
        self.left = Host(self, "left", "10.0.0.1")
        #: The right host, usually for clients.
        self.right = Host(self, "right", "10.0.0.2")

    @property
    def pid(self) -> int:
        """The process ID of the path's ``nichrome wan``."""
        if self._process is None:
            raise NichromeError("the path is not running: use it within a 'with' block")
        return self._process.pid

    def __enter__(self) -> Path:
        if self._process is not None:
            raise NichromeError("the path is running already: use another Path")
        # The shell reads a pipe from this process, so it ends with this process in any case, and the path ends with the shell.
        self._process = subprocess.Popen(
            [command(), "wan", "--json", *self._options, "--", "sh", "-c", "read -r _ || :"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Keeps Ctrl-C from the path: this process receives it, and ends the path in order.
            start_new_session=True,
        )
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read_messages, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        try:
            self._wait_until_up(self._process)
        except BaseException:
            self._process.kill()
            self._end(self._process)
            raise
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        for process in self._started:
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        assert self._process is not None
        printed = self._end(self._process)
        status = self._process.returncode
        self._process = None
        if status == 0:
            self.summary = json.loads(printed)
        elif error is None:
            raise NichromeError("\n".join(self._messages) or f"nichrome wan: exit status {status}")

    def set(self, **impairments: Any) -> None:
        """Changes impairments; others are unchanged, and ``loss="none"`` removes one."""
        run(["wan", "set", "--run", str(self.pid), *options(impairments)])

    def show(self) -> Dict[str, Any]:
        """Returns the results of the path so far."""
        return dict(run_json(["wan", "show", "--json", "--run", str(self.pid)]))

    def _end(self, process: subprocess.Popen[str]) -> str:
        """Ends the path and returns what it has printed. All pipes are closed then."""
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        # Ends the shell by a line, because closing the pipe may not: a process forked meanwhile may keep it open.
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write("\n")
        with process.stdout, process.stderr:
            printed = process.stdout.read()
            self._reader.join()
        process.wait()
        return printed

    def _read_messages(self, source: IO[str]) -> None:
        self._messages.extend(line.rstrip("\n") for line in source)

    def _wait_until_up(self, process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + _UNTIL_UP
        while True:
            try:
                self.show()
                return
            except NichromeError as error:
                if process.poll() is not None:
                    self._reader.join()
                    raise NichromeError("\n".join(self._messages)) from None
                if time.monotonic() > end:
                    raise NichromeError(f"the path did not start: {error}") from None
                time.sleep(0.02)
