"""Receive coalescing of captures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

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


def coalesce(
    path: Union[str, os.PathLike[str]],
    output: Optional[Union[str, os.PathLike[str]]] = None,
    **given: Any,
) -> Coalesced:
    """Runs a coalescing engine over a capture, in the capture's own time.

    Args:
        path: A pcap or pcapng file, or a folder of them.
        output: The pcapng file to write with the aggregates.
        **given: Options of ``nichrome coalesce``: ``profile="npu"``, ``hold="100us"``, ``verify=True``.

    Raises:
        NichromeError: The capture cannot be read, or an option is wrong.
    """
    files = [os.fspath(path)] + ([os.fspath(output)] if output is not None else [])
    return Coalesced(run_json(["coalesce", "--json", *options(given), "--", *files]))
