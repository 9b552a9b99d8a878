"""Argument checks without the type checks that pytest adds, as for a user."""

from __future__ import annotations

import subprocess
import sys

CALLS = """
import math, torch, inlayer
from inlayer import Embeddings, Head
from inlayer.errors import InlayerError
from inlayer.positions import LearnedPositions
from inlayer.tables import Table
for number, call in enumerate((
    lambda: Head(4, 10, padding_idx=99), lambda: Head(4, 10, padding_idx="x"), lambda: Head(4, 10, padding_idx=True),
    lambda: Head(4, 10, scale="x"), lambda: Head(4, 10, soft_cap="x"), lambda: Head(4, True), lambda: Head(4, 1.5),
    lambda: Head(4, 10).loss(torch.zeros(1, 4), torch.tensor([1]), z_loss="x"),
    lambda: Table(10, 4, padding_idx=True), lambda: Table(10, 4, padding_idx=1.0), lambda: Table(10, "x"),
    lambda: Table(10, 4, init_std="x"), lambda: Table(10, 4, init_std=None),
    lambda: LearnedPositions(10, 4, init_std="x"),
    lambda: Embeddings(10, 4, init_std="x"), lambda: Embeddings(10, 4, padding_idx=True),
    lambda: Embeddings(10, 4, scale="x"), lambda: Embeddings(10, 4, dropout="x"),
    lambda: Embeddings(10, 4, scale=10**400),
    lambda: Embeddings(10, 4, norm_eps="x"),
)):
    try:
        call()
    except InlayerError as error:
        assert "\\n" not in str(error)
    else:
        raise AssertionError(number)
assert Head(4, 10, padding_idx=-1).padding_idx == 9  # as Table and nn.Embedding count
"""


def test_invalid_arguments_are_reported_without_type_checks() -> None:
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
