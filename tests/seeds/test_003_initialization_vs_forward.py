"""Statements of 003_44ac4c2c945f3e5a.txt about a byte-level GPT; its Python runs verbatim."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from inlayer import ByteTokenizer, Embeddings
from tests.shared_data import shared

INITIALizATION = """
# This happens in __init__
embeddings = Embeddings(vocab_size=256, block_size=8, n_embd=4)

# Creates two lookup tables:
# 1. Token embedding table: 256 rows × 4 columns (one row per possible byte)
# 2. Position embedding table: 8 rows × 4 columns (one row per position 0-7)
"""
FORWARD = """
# Input: "Hi" becomes token IDs [72, 105]
token_ids = torch.tensor([[72, 105]])  # Shape: [1, 2]

# Now call forward()
result = embeddings(token_ids)
"""
STEP_1 = """
# Look up token 72 ('H') and token 105 ('i') in the token table
tok_emb = self.token_embedding(token_ids)
"""
STEP_2 = """
# Create position indices [0, 1] for our 2-token sequence
pos = torch.arange(2)  # [0, 1]

# Look up positions 0 and 1 in the position table
pos_emb = self.position_embedding(pos)
"""
STEP_3 = """
# Add token and position embeddings element-wise
final_embeddings = tok_emb + pos_emb
"""
COMPLETE_FLOW = """
# 1. INITIALIZATION
embeddings = Embeddings(vocab_size=256, block_size=8, n_embd=4)
# → Creates two 256×4 and 8×4 tables with random numbers

# 2. FORWARD PASS
text = "Hi"
tokenizer = ByteTokenizer()
token_ids = torch.tensor([tokenizer.encode(text)])  # [[72, 105]]

result = embeddings(token_ids)
# → Looks up rows 72, 105 from token table
# → Looks up rows 0, 1 from position table
# → Adds them together
# → Returns 2 vectors of length 4

print(result.shape)  # torch.Size([1, 2, 4])
"""
TOKEN_ROWS = {
    0: [0.12, -0.34, 0.56, -0.78],
    1: [0.45, 0.23, -0.12, 0.67],
    72: [0.89, -0.45, 0.23, 0.34],
    105: [0.33, 0.77, -0.11, 0.22],
    255: [0.11, 0.88, -0.33, 0.55],
}
POSITION_ROWS = {
    0: [0.22, -0.11, 0.44, -0.66],
    1: [0.77, 0.33, -0.88, 0.12],
    2: [0.99, -0.22, 0.55, 0.44],
    7: [0.66, 0.44, -0.77, 0.88],
}
H_AT_0, I_AT_1 = [1.11, -0.56, 0.67, -0.32], [1.10, 1.10, -0.99, 0.34]


def run(*snippets: str, **names: Any) -> SimpleNamespace:
    """Run the document's code in one namespace, as a reader would."""
    space: dict[str, Any] = {"torch": torch, "Embeddings": Embeddings, "ByteTokenizer": ByteTokenizer} | names
    for snippet in snippets:
        exec(snippet, space)
    return SimpleNamespace(**{name: value for name, value in space.items() if not name.startswith("__")})


@pytest.fixture
def embeddings() -> Embeddings:
    """The layer with the values in the document."""
    layer: Embeddings = run(INITIALizATION).embeddings
    with torch.no_grad():
        for row, values in TOKEN_ROWS.items():
            layer.token_embedding.weight[row] = torch.tensor(values)
        for row, values in POSITION_ROWS.items():
            layer.position_embedding.weight[row] = torch.tensor(values)
    return layer


def close(ours: Tensor, theirs: list[Any]) -> bool:
    return torch.allclose(ours, torch.tensor(theirs), rtol=0, atol=1e-6)


def test_initialization_creates_two_tables() -> None:
    layer = run(INITIALizATION).embeddings
    assert layer.token_embedding.weight.shape == (256, 4)
    assert layer.position_embedding.weight.shape == (8, 4)
    assert sum(p.numel() for p in layer.parameters()) == 256 * 4 + 8 * 4


def test_tables_are_randomly_initialized() -> None:
    first, second = run(INITIALizATION).embeddings, run(INITIALizATION).embeddings
    assert not torch.equal(first.token_embedding.weight, second.token_embedding.weight)
    assert not torch.equal(first.position_embedding.weight, second.position_embedding.weight)
    assert first.token_embedding.weight.unique().numel() > 1000


def test_forward_snippet(embeddings: Embeddings) -> None:
    out = run(FORWARD, embeddings=embeddings)
    assert out.token_ids.shape == (1, 2)
    assert close(out.result, [[H_AT_0, I_AT_1]])


def test_steps(embeddings: Embeddings) -> None:
    """Token lookup, position lookup, sum: the numbers in the document, and forward() equals that sum."""
    out = run(FORWARD, STEP_1, STEP_2, STEP_3, embeddings=embeddings, self=embeddings)
    assert close(out.tok_emb, [[TOKEN_ROWS[72], TOKEN_ROWS[105]]])
    assert close(out.pos_emb, [POSITION_ROWS[0], POSITION_ROWS[1]])
    assert close(out.final_embeddings, [[H_AT_0, I_AT_1]])
    assert torch.equal(out.final_embeddings, out.result)
    assert not close(embeddings(out.token_ids.flip(1)), [[I_AT_1, H_AT_0]])  # control: order matters


def test_complete_flow(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(COMPLETE_FLOW)
    assert capsys.readouterr().out == "torch.Size([1, 2, 4])\n"
    assert out.tokenizer.encode("Hi") == [72, 105]
    assert out.tokenizer.get_vocab_size() == 256
    theirs = out.embeddings.token_embedding.weight[[72, 105]] + out.embeddings.position_embedding.weight[[0, 1]]
    assert torch.equal(out.result[0], theirs)


def test_tables_are_created_once_and_read_often(embeddings: Embeddings) -> None:
    before = [p.detach().clone() for p in embeddings.parameters()]
    first, again = embeddings(torch.tensor([[72, 105]])), embeddings(torch.tensor([[72, 105]]))
    assert torch.equal(first, again)
    assert all(torch.equal(a, b) for a, b in zip(before, embeddings.parameters(), strict=True))


def test_every_byte_and_every_position_has_a_row(embeddings: Embeddings) -> None:
    assert embeddings(torch.arange(256).view(32, 8)).shape == (32, 8, 4)
    with pytest.raises(IndexError, match=r"id 256 at .* outside 0..255"):
        embeddings(torch.tensor([[256]]))
    with pytest.raises(IndexError, match=r"position 8 .* block_size is 8"):
        embeddings(torch.zeros(1, 9, dtype=torch.int64))


def test_same_byte_differs_by_position(embeddings: Embeddings) -> None:
    hidden = embeddings(torch.tensor([[72, 72]]))
    difference = torch.tensor(POSITION_ROWS[1]) - torch.tensor(POSITION_ROWS[0])
    torch.testing.assert_close(hidden[0, 1] - hidden[0, 0], difference, rtol=0, atol=1e-6)


def test_training_updates_the_rows_that_were_read(embeddings: Embeddings) -> None:
    token, position = embeddings.token_embedding.weight, embeddings.position_embedding.weight
    before = token.detach().clone(), position.detach().clone()
    optimizer = torch.optim.SGD(embeddings.parameters(), lr=0.1)
    (embeddings(torch.tensor([[72, 105]])) - 1).square().sum().backward()
    optimizer.step()
    assert (token != before[0]).any(1).nonzero().flatten().tolist() == [72, 105]
    assert (position != before[1]).any(1).nonzero().flatten().tolist() == [0, 1]


def test_document_runs_top_to_bottom(embeddings: Embeddings, capsys: pytest.CaptureFixture[str]) -> None:
    """Run every Python block of the document, in order."""
    document = shared("seeds", "003_44ac4c2c945f3e5a.txt").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", document, flags=re.DOTALL)
    assert len(blocks) == 6
    made, *rest = blocks
    run(made)  # its tables are random; the next blocks use the rows of the fixture
    out = run(*rest, embeddings=embeddings, self=embeddings)
    assert capsys.readouterr().out == "torch.Size([1, 2, 4])\n"
    assert close(out.final_embeddings, [[H_AT_0, I_AT_1]])
