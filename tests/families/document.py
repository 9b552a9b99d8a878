"""Write docs/families.md: every family, how its layer is made, and the proof that it is exact. `make docs` runs it.

Each case builds a model of `transformers` with random weights, gives both sides the same inputs, and counts the values
that were compared; a single differing bit stops the run. tests/families/test_document.py keeps the page and the table
of families together.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from inlayer.embeddings import Embeddings
from inlayer.families import LayerSpec, describe
from inlayer.families.table import NESTED
from inlayer.positions import Angles, RotaryPositions
from tests.families.references import CASES, Case, Reference

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
DTYPES = (torch.float32, torch.bfloat16)

HEADER = """# Families

Made by `make docs`; do not edit. What `Embeddings.from_config` knows, and the proof that it is exact: for every case
a tiny model of `transformers` {version} is built with random weights and the case's position settings, and the tensor
that enters its first block is compared with ours, bit by bit, in float32 and bfloat16: plain, padded right, padded
left, with `position_ids` up to the longest named, and with `inputs_embeds`. cos and sin are compared as the model's own
rotary module returns them. The same comparisons, and controls that show they can fail, run in
`tests/families/test_parity.py`.

The last columns count the compared values, float32 + bfloat16, every one of them equal. "half" and "interleaved" pairs
say which channels of a head turn together, the tables' word how cos and sin are laid out over them
(`inlayer/positions/rotary.py`). A scale is "rounded" to the table's dtype first. "Padding row": where a config of
this family names a pad_token_id (all of these do, but llama-1's; Kimi-K2's own file does not), that row takes no
gradient. A layer is born in training mode, as every module: call `.eval()` where a config has dropout.

Configs with their text part inside ({nested}, and any other whose `text_config` names a type below) are
read from that part. A model type that is not here is refused with the list of those that are. Describe its layer by
hand instead:

```python
from inlayer import Embeddings
from inlayer.positions import Angles, RotaryPositions, Yarn

layer = Embeddings(
    vocab_size=1_000,
    n_embd=64,
    positions=RotaryPositions(
        head_dim=16,
        angles=Angles(theta=50_000.0, scaling=Yarn(factor=4.0, original_max_position_embeddings=4096)),
    ),
    padding_idx=0,
)
```

| model type | case | positions | around the sum | hidden states: values bit-equal | cos, sin: values bit-equal |
|---|---|---|---|---|---|
"""


@dataclass
class Count:
    """How many values were compared, all of them equal to the last bit."""

    hidden: int = 0
    tables: int = 0


def prove(case: Case, dtype: torch.dtype) -> Count:
    """Compare one case in one dtype on every kind of input; raise at the first difference."""
    both, count = Reference(case, dtype), Count()
    layer = both.ours()
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(4, 99, (3, 7), generator=generator)
    right, left = ids.clone(), ids.clone()
    right[1:, 4:], left[1:, :3] = 1, 1
    inputs = [
        {"input_ids": ids},
        {"input_ids": right, "attention_mask": right.ne(1).long()},
        {"input_ids": left, "attention_mask": left.ne(1).long()},
        {"inputs_embeds": torch.randn(3, 7, both.table.embedding_dim, generator=generator).to(dtype)},
    ]
    if layer.position_embedding is not None:
        position_ids = torch.randint(0, case.longest + 1, ids.shape, generator=generator)
        position_ids[0, 0] = case.longest
        inputs.append({"input_ids": ids, "position_ids": position_ids})
    for one in inputs:
        theirs, tables = both.run(**one)
        count.hidden += _equal_values(layer(**one), theirs, case)
        for layer_type, cos_sin in tables.items():
            position_ids = one.get("position_ids", torch.arange(7)[None])
            for mine, other in zip(layer.rotary(position_ids, layer_type), cos_sin, strict=True):
                count.tables += _equal_values(mine.expand_as(other), other, case)
    return count


def _equal_values(ours: torch.Tensor, theirs: torch.Tensor, case: Case) -> int:
    if ours.dtype != theirs.dtype or not torch.equal(ours, theirs):
        raise SystemExit(f"{case.name}: ours differs from transformers'; the page is not written")
    return ours.numel()


def traits(case: Case) -> str:
    """The columns that follow from the config alone."""
    layer = Embeddings.from_config(case.config_json, device="meta")
    spec = describe(case.config_json)
    return f"| {spec.family} | {case.name} | {_positions(spec, layer, case)} | {_around(spec)} |"


def _positions(spec: LayerSpec, layer: Embeddings, case: Case) -> str:
    if isinstance(layer.position_embedding, RotaryPositions):
        rotary = layer.position_embedding
        several = rotary.angles if isinstance(rotary.angles, dict) else {"": rotary.angles}
        settings = "; ".join(f"{name} {_angles(angles)}".strip() for name, angles in several.items())
        return f"rotary, {rotary.pairing} pairs, {rotary.layout} tables, {settings}; up to {case.longest:,}"
    if spec.positions == "none":
        return "none here"
    offset = f", offset {spec.position_offset}" if spec.position_offset else ""
    return f"learned{offset}, numbered by {spec.position_id_rule.by}"


def _angles(angles: Angles) -> str:
    part = "" if angles.partial == 1 else f", {angles.partial:g} of a head"
    scaling = "" if angles.scaling is None else f", {type(angles.scaling).__name__}"
    return f"theta {angles.theta:,.0f}{part}{scaling}"


def _around(spec: LayerSpec) -> str:
    parts = [
        f"scale {spec.scale:g}, rounded" if spec.scale != 1 else "",
        f"multiplier {spec.multiplier:g}" if spec.multiplier != 1 else "",
        f"{spec.token_types} token types" if spec.token_types else "",
        "LayerNorm" if spec.norm_eps is not None else "",
        f"{spec.row_width} wide rows, {spec.project} projected" if spec.row_width else "",
        "padding row" if spec.padding_idx is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def main() -> None:
    lines = [HEADER.format(version=transformers.__version__, nested=", ".join(NESTED))]
    for case in CASES:
        counts = [prove(case, dtype) for dtype in DTYPES]
        proof = " + ".join(f"{count.hidden:,}" for count in counts)
        tables = " + ".join(f"{count.tables:,}" for count in counts) if counts[0].tables else ""
        lines.append(f"{traits(case)} {proof} | {tables} |\n")
        sys.stderr.write(f"\r{len(lines) - 1} of {len(CASES)} cases")
    PAGE.write_text("".join(lines), encoding="utf-8")
    sys.stderr.write(f"\rwrote {PAGE.name}: {len(CASES)} cases\n")


if __name__ == "__main__":
    main()
