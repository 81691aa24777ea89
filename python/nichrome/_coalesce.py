"""Receive coalescing of captures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Union, overload

from nichrome._command import options, run_json

if TYPE_CHECKING:
    import pandas
    import pyarrow


@dataclass(frozen=True)
class Coalesced:
    """The packets that a card would have handed to the host. ``summary`` is the JSON of ``nichrome coalesce --json``."""

    summary: Dict[str, Any]

    @property
    def packets_in(self) -> int:
        """Packets received."""
        return int(self.summary["packets_in"])

    @property
    def packets_out(self) -> int:
        """Packets handed to the host."""
        return int(self.summary["packets_out"])

    @property
    def segments_per_aggregate(self) -> float:
        """The mean number of segments of an aggregate."""
        return float(self.summary["mean_segments_per_aggregate"])

    @property
    def sizes(self) -> List[Dict[str, int]]:
        """Packets handed to the host, by the number of segments in them."""
        return list(self.summary["segments_histogram"])

    def to_pandas(self) -> pandas.DataFrame:
        """Returns ``sizes`` as a DataFrame. Needs pandas."""
        import pandas

        frame: pandas.DataFrame = pandas.DataFrame(self.sizes, columns=["segments", "packets"])
        return frame

    def to_arrow(self) -> pyarrow.Table:
        """Returns ``sizes`` as a table. Needs pyarrow."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.sizes)


@dataclass(frozen=True)
class Compared:
    """What cards of every profile and several hold times would have handed to the host. ``summary`` is the JSON of
    ``nichrome coalesce --compare --json``."""

    summary: Dict[str, Any]

    @property
    def packets_in(self) -> int:
        """Packets received."""
        return int(self.summary["packets_in"])

    @property
    def runs(self) -> List[Dict[str, Any]]:
        """The results, one for each profile and hold time: ``profile``, ``hold_us``, ``packets_out`` and others."""
        return list(self.summary["runs"])

    def to_pandas(self) -> pandas.DataFrame:
        """Returns ``runs`` as a DataFrame. Needs pandas."""
        import pandas

        frame: pandas.DataFrame = pandas.DataFrame(self.runs)
        return frame

    def to_arrow(self) -> pyarrow.Table:
        """Returns ``runs`` as a table. Needs pyarrow."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.runs)


@overload
def coalesce(
    path: Union[str, os.PathLike[str]],
    output: None = None,
    *,
    compare: Literal[True],
    **given: Any,
) -> Compared: ...


@overload
def coalesce(
    path: Union[str, os.PathLike[str]],
    output: Optional[Union[str, os.PathLike[str]]] = None,
    *,
    compare: Literal[False] = False,
    **given: Any,
) -> Coalesced: ...


@overload
def coalesce(
    path: Union[str, os.PathLike[str]],
    output: Optional[Union[str, os.PathLike[str]]] = None,
    *,
    compare: bool,
    **given: Any,
) -> Union[Coalesced, Compared]: ...


def coalesce(
    path: Union[str, os.PathLike[str]],
    output: Optional[Union[str, os.PathLike[str]]] = None,
    *,
    compare: bool = False,
    **given: Any,
) -> Union[Coalesced, Compared]:
    """Runs a coalescing engine over a capture, in the capture's own time.

    Args:
        path: A pcap or pcapng file, or a folder of them.
        output: The pcapng file to write with the aggregates.
        compare: Runs every engine with several hold times instead, and returns a ``Compared``.
        **given: Options of ``nichrome coalesce``: ``profile="npu"``, ``hold="100us"``, ``verify=True``.

    Raises:
        NichromeError: The capture cannot be read, or an option is wrong.
        ValueError: ``output`` or ``acks`` is standard output, where the command prints the summary.
    """
    for name, file in [("output", output), ("acks", given.get("acks"))]:
        if file is not None and os.fspath(file) in ("-", "/dev/stdout"):
            raise ValueError(f"{name} needs the name of a file: the command prints the summary to standard output")
    files = [os.fspath(path)] + ([os.fspath(output)] if output is not None else [])
    summary = run_json(["coalesce", "--json", *options({"compare": compare, **given}), "--", *files])
    return Compared(summary) if compare else Coalesced(summary)
