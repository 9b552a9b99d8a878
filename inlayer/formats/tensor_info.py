"""The location of a tensor in a file, and the error for an unreadable file, for every format.

file -> [header] -> tables, checkpoint
Tested in tests/formats/test_safetensors.py and tests/formats/test_dequantization.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlayer.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """Dtype, shape, and location of a tensor in a file."""

    name: str
    dtype: str  # as in the file: "BF16", "Q8_0"
    shape: tuple[int, ...]
    file: str  # file name, relative to the checkpoint
    offset: int  # position of its first byte in that file
    nbytes: int

    @property
    def is_matrix(self) -> bool:
        """True if it has two axes, neither of them empty: the shape of a table."""
        return len(self.shape) == 2 and 0 not in self.shape


def unreadable_file_error(kind: str, source: str, why: str, *, cut: bool = False) -> CheckpointError:
    """Return the error for a file that is not a readable file of a kind; `cut`: perhaps because it is incomplete."""
    cause = "; was the download cut short?" if cut else ""
    return CheckpointError(f"{source} is not a readable {kind} file: {why}{cause}")
