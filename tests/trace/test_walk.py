"""Every number of a trace equals what the library computes."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import inlayer
from inlayer.errors import IdRangeError, InlayerError, InputError, PositionRangeError, TextError
from inlayer.positions import RopeParameters, RotaryPositions
from inlayer.tokenizers import ByteTokenizer
from inlayer.trace import Change, Pipeline, Trace
from inlayer.trace.facts import TokenTrace
from inlayer.trace.position_schemes import COMPARED_SCALINGS
from inlayer.trace.token_facts import describe_token
from tests.trace.pipelines import FAMILIES, SAMPLES, family, random_bytes, sample

DIMS = 5


def tokens_of(trace: Trace) -> list[tuple[int, int, TokenTrace]]:
    return [(b, t, token) for b, text in enumerate(trace.texts) for t, token in enumerate(text.tokens)]


def check_numbers(pipeline: Pipeline, texts: list[str]) -> Trace:
    """Compare every number of a walk with the tokenizer, the table and the layer."""
    tokenizer, layer = pipeline.tokenizer, pipeline.layer
    assert tokenizer is not None
    ids, mask = tokenizer.encode_batch(texts).padded(pipeline.padding_id or 0)
    rows, hidden = layer.token_embedding(ids), layer(ids, attention_mask=mask)
    trace = pipeline.walk(texts, dims=DIMS)
    assert trace.shape == tuple(hidden.shape)
    assert trace.gather.shape == tuple(rows.shape)
    assert trace.gather.equal
    assert len(tokens_of(trace)) == ids.numel()
    for b, t, token in tokens_of(trace):
        assert token.id == ids[b, t]
        assert token.mask == mask[b, t]
        assert token.row == rows[b, t, :DIMS].tolist()
        assert token.hidden == hidden[b, t, :DIMS].tolist()
        assert len(token.stages) == len(trace.stages)
    if isinstance(layer.position_embedding, RotaryPositions):
        for number, rotary in enumerate(trace.positions.rotary):
            cos, sin = layer.rotary(torch.arange(ids.shape[1]), rotary.layer_type)
            at = slice(None) if layer.position_embedding.layout != "interleaved" else slice(0, None, 2)
            for _, t, token in tokens_of(trace):
                shown = min(DIMS, rotary.n_pairs)
                assert token.rotations[number].cos == cos[t, at][:shown].tolist()
                assert token.rotations[number].sin == sin[t, at][:shown].tolist()
                angles = torch.tensor(token.rotations[number].angles)
                torch.testing.assert_close((angles.cos() * rotary.attention_factor).to(cos.dtype), cos[t, at][:shown])
    else:
        assert all(token.rotations == [] for *_, token in tokens_of(trace))
    return trace


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
def test_walk_matches_the_layer_for_every_family(name: str, dtype: torch.dtype) -> None:
    texts = ["I love dogs", "I love dogs and the rain"]
    pipeline = family(name, dtype)
    check_numbers(pipeline, texts if pipeline.padding_id is not None else texts[:1])


@pytest.mark.parametrize("name", SAMPLES)
def test_walk_matches_the_layer_for_samples(name: str) -> None:
    pipeline = sample(name)
    check_numbers(
        pipeline, ["I love dogs, naïve 🙂 漢字", "x"] if pipeline.padding_id is not None else ["naïve 🙂 漢字"]
    )


@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal", "rotary"])
def test_walk_matches_a_random_layer(positions: str) -> None:
    check_numbers(random_bytes(positions), ["I love dogs", "naïve 🙂", ""])


def test_changed_rows_change_the_trace() -> None:
    pipeline = random_bytes("learned")
    before = pipeline.walk(["ab"], dims=DIMS)
    with torch.no_grad():
        pipeline.layer.token_embedding.weight[97, 0] += 1
    after = pipeline.walk(["ab"], dims=DIMS)
    assert before.texts[0].tokens[0].row != after.texts[0].tokens[0].row
    assert before.texts[0].tokens[1].row == after.texts[0].tokens[1].row


def test_position_stages_are_sums() -> None:
    """Before + added = after, in the layer's own arithmetic."""
    for name in ("gpt2", "bert", "opt"):
        pipeline = family(name, torch.bfloat16)
        trace = pipeline.walk(["I love dogs"], dims=DIMS)
        index = [stage.name for stage in trace.stages].index("position")
        for *_, token in tokens_of(trace):
            before = token.stages[index - 1].output if index else token.row
            total = torch.tensor(before, dtype=torch.bfloat16) + torch.tensor(
                token.stages[index].added, dtype=torch.bfloat16
            )
            assert total.tolist() == token.stages[index].output


def test_scaling_changes_the_angles() -> None:
    plain, scaled = (family(name).walk(["I love dogs"]) for name in ("llama", "llama-3.1"))
    assert all(token.rotations[0].angles == token.rotations[0].unscaled_angles for *_, token in tokens_of(plain))
    assert scaled.positions.rotary[0].scaling is not None
    assert scaled.texts[0].tokens[2].rotations[0].angles != scaled.texts[0].tokens[2].rotations[0].unscaled_angles


@pytest.mark.parametrize("name", ["default", "minilm", "wordllama"])
def test_offsets_point_to_the_stored_rows(name: str) -> None:
    """Read each row with plain `open` and `seek`, byte for byte."""
    pipeline = sample(name)
    trace = pipeline.walk(["I love dogs"], dims=4)
    model = inlayer.load(name)
    assert trace.table.itemsize is not None
    file = next(path for path in _files(model) if path.name == Path(str(trace.table.file)).name)
    unpack = {"F32": "<f", "F16": "<e", "BF16": None}[trace.table.dtype]
    with file.open("rb") as stream:
        for *_, token in tokens_of(trace):
            assert token.offset is not None
            stream.seek(token.offset)
            for value, bits in zip(token.row, token.stored_hex, strict=True):
                raw = stream.read(trace.table.itemsize)
                assert raw[::-1].hex() == bits
                number = struct.unpack("<f", b"\0\0" + raw) if unpack is None else struct.unpack(unpack, raw)
                assert number[0] == value


def _files(model: inlayer.Model) -> list[Path]:
    return [Path(model.table.source.path)]  # type: ignore[attr-defined]


def test_quantized_rows_show_the_bytes_of_their_first_block() -> None:
    pipeline = sample("smollm2")
    trace = pipeline.walk(["I love dogs"], dims=8)
    assert (trace.table.dtype, trace.table.itemsize) == ("Q8_0", None)
    token = trace.texts[0].tokens[1]
    raw = bytes.fromhex("".join(token.stored_hex))
    scale = struct.unpack("<e", raw[:2])[0]
    quants = struct.unpack("<8b", raw[2:10])
    assert [scale * value for value in quants] == token.row


def test_one_hot_product_covers_the_table_or_the_rows_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = random_bytes("none")
    assert pipeline.walk(["ab"]).gather.whole_table
    monkeypatch.setattr("inlayer.trace.record.MAX_COMPARED", 10)
    gather = pipeline.walk(["ab"]).gather
    assert (gather.whole_table, gather.equal, gather.compared_rows) == (False, True, 2)
    monkeypatch.undo()
    with torch.no_grad():
        pipeline.layer.token_embedding.weight[5, 3] = torch.inf  # a row that is not in the text
    pipeline = Pipeline.from_layer(pipeline.layer, pipeline.tokenizer, source="damaged")
    gather = pipeline.walk(["ab"]).gather
    assert not gather.equal
    assert "non-finite" in gather.note


def test_one_hot_products_are_computed_once_per_id(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = random_bytes("none")
    rows = pipeline.layer.token_embedding.weight.detach().float()
    assert torch.equal(pipeline.one_hot_product([97, 98]), rows[[97, 98]])
    monkeypatch.setattr(pipeline, "blocks", lambda: [(0, torch.zeros_like(rows))])  # what a second product would give
    assert torch.equal(pipeline.one_hot_product([98, 97]), rows[[98, 97]])
    assert not torch.equal(pipeline.one_hot_product([99]), rows[[99]])  # control
    assert pipeline.one_hot_product([]).shape == (0, rows.shape[1])


def test_inputs_embeds_start_at_step_five() -> None:
    pipeline = family("bert")
    vectors = torch.randn(2, 3, pipeline.layer.token_embedding.embedding_dim)
    trace = pipeline.walk(None, inputs_embeds=vectors, dims=DIMS)
    hidden = pipeline.layer(inputs_embeds=vectors)
    assert trace.input == "inputs_embeds"
    for b, t, token in tokens_of(trace):
        assert token.row == vectors[b, t, :DIMS].tolist()
        assert token.hidden == hidden[b, t, :DIMS].tolist()
        assert (token.id, token.offset, token.stored_hex) == (None, None, [])
    assert trace.backward is None
    one = pipeline.walk(None, inputs_embeds=vectors[0], dims=DIMS)
    assert [token.hidden for *_, token in tokens_of(one)] == [
        token.hidden for b, _, token in tokens_of(trace) if b == 0
    ]


def test_long_texts_are_truncated_and_counted() -> None:
    pipeline = random_bytes("rotary")
    text = "ab" * 5000
    trace = pipeline.walk([text], max_tokens=10)
    assert trace.shape == (1, 10_000, 8)
    assert (trace.texts[0].n_tokens, len(trace.texts[0].tokens), len(trace.texts[0].characters)) == (10_000, 10, 10)
    hidden = pipeline.layer(torch.tensor([ByteTokenizer().encode(text)]))
    assert [token.hidden for token in trace.texts[0].tokens] == hidden[0, :10].tolist()


@pytest.mark.parametrize("name", ["roberta", "opt", "llama-dynamic-short"])
def test_truncation_changes_no_number(name: str) -> None:
    """Position ids that skip padding, and angles that depend on the length, come from the whole batch."""
    pipeline = family(name)
    texts = ["dogs", "I love dogs and cats but not the rain in May"]
    whole, part = pipeline.walk(texts), pipeline.walk(texts, max_tokens=3)
    for b in range(2):
        for one, other in zip(whole.texts[b].tokens[:3], part.texts[b].tokens, strict=True):
            assert one == other


def test_text_longer_than_block_size_is_an_error_even_if_truncated() -> None:
    pipeline = family("gpt2")
    with pytest.raises(PositionRangeError, match="64"):
        pipeline.walk(["dogs " * 65], max_tokens=3)


def test_rotary_beyond_block_size_is_noted() -> None:
    assert "64" in family("llama").walk(["dogs " * 65]).positions.note


def test_swap_and_pad() -> None:
    pipeline = sample("default")
    plain = pipeline.walk(["I love dogs"])
    swapped = pipeline.walk(["I love dogs"], change=Change(swap=(0, 2)))
    ids = [token.id for token in plain.texts[0].tokens]
    assert [token.id for token in swapped.texts[0].tokens] == [ids[2], ids[1], ids[0], ids[3]]
    assert swapped.texts[0].tokens[0].row == plain.texts[0].tokens[2].row
    assert (
        swapped.texts[0].tokens[0].rotations == plain.texts[0].tokens[0].rotations
    )  # rotations depend on the position

    padded = pipeline.walk(["I love dogs"], change=Change(pad=2))
    assert padded.shape == (1, 6, 128)
    assert [token.mask for token in padded.texts[0].tokens] == [1, 1, 1, 1, 0, 0]
    assert padded.texts[0].tokens[:4] == plain.texts[0].tokens
    assert padded.texts[0].tokens[5].row == [0.0] * 8


@pytest.mark.parametrize("scheme", ["none", "learned", "sinusoidal", "rotary"])
@pytest.mark.parametrize("name", ["default", "minilm"])
def test_replaced_positions(name: str, scheme: str) -> None:
    pipeline = sample(name)
    own, other = pipeline.walk(["I love dogs"]), pipeline.walk(["I love dogs"], change=Change(positions=scheme))
    assert other.positions.scheme == scheme
    assert other.positions.from_model == (own.positions.scheme == scheme)
    for (*_, one), (*_, two) in zip(tokens_of(own), tokens_of(other), strict=True):
        assert one.row == two.row  # positions never change the row
    if other.positions.from_model:
        assert [token for *_, token in tokens_of(own)] == [token for *_, token in tokens_of(other)]
    if scheme == "sinusoidal":
        sinusoidal = inlayer.Embeddings(9, pipeline.table.shape[1], positions="sinusoidal").position_embedding
        index = [stage.name for stage in other.stages].index("position")
        token = other.texts[0].tokens[2]
        wave = sinusoidal(torch.tensor([2]))[0].to(pipeline.layer.dtype)  # type: ignore[misc]
        assert token.stages[index].added == wave[:8].tolist()


def test_replaced_theta() -> None:
    pipeline = sample("default")
    slow, fast = (pipeline.walk(["I love dogs"], change=Change(theta=theta)) for theta in (1e6, 100.0))
    assert slow.positions.rotary[0].theta == 1e6
    assert slow.texts[0].tokens[1].rotations[0].angles[0] == fast.texts[0].tokens[1].rotations[0].angles[0] == 1.0
    assert slow.texts[0].tokens[1].rotations[0].angles[3] < fast.texts[0].tokens[1].rotations[0].angles[3]
    with pytest.raises(InputError, match="theta"):
        sample("minilm").walk(["a"], change=Change(theta=5.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": []}, "empty"),
        ({"texts": None}, "either"),
        ({"texts": ["a"], "dims": 0}, "dims"),
        ({"texts": ["a"], "max_tokens": 0}, "max_tokens"),
        ({"texts": ["a"], "change": Change(swap=(0, 9))}, "token 9"),
        ({"texts": ["a"], "change": Change(swap=(0, -1))}, "token -1"),
        ({"texts": ["a"], "change": Change(pad=-1)}, "pad"),
        ({"texts": ["a"], "change": Change(pad=10**9)}, "pad"),
        ({"texts": ["a"], "change": Change(positions="spiral")}, "spiral"),
        ({"texts": ["a"], "change": Change(positions="rotary", theta=-1.0)}, "theta"),
        ({"texts": ["a"], "change": Change(positions="rotary", theta=float("nan"))}, "theta"),
        ({"texts": ["a"], "change": Change(positions="sinusoidal", theta=float("nan"))}, "theta"),
    ],
)
def test_invalid_arguments_are_reported(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InlayerError, match=message):
        sample("default").walk(**arguments)  # type: ignore[arg-type]


def test_a_lone_surrogate_is_a_text_error() -> None:
    with pytest.raises(TextError):
        inlayer.walk("\ud800")


def test_ids_outside_the_table_are_an_error() -> None:
    small = inlayer.Embeddings(50, 4)
    pipeline = Pipeline.from_layer(small, ByteTokenizer(), source="small")
    with pytest.raises(IdRangeError, match="97"):
        pipeline.walk(["a"])


def test_texts_must_have_equal_lengths_without_a_padding_token() -> None:
    pipeline = Pipeline.from_layer(inlayer.Embeddings(256, 4), ByteTokenizer(), source="bare")
    assert pipeline.walk(["ab", "cd"]).shape == (2, 2, 4)
    with pytest.raises(InputError, match="no padding"):
        pipeline.walk(["ab", "c"])
    with pytest.raises(InputError, match="no padding"):
        pipeline.walk(["ab"], change=Change(pad=1))


def test_walk_function_equals_pipeline_walk() -> None:
    long = sample("default").walk(["I love dogs"])
    assert inlayer.walk("I love dogs") == long
    assert inlayer.walk(["I love dogs"], "default") == long
    assert inlayer.walk("I love dogs", inlayer.load()) == long
    assert inlayer.walk("I love dogs", pad=1, dims=3).texts[0].n_padding == 1
    assert isinstance(long, inlayer.Trace)


@pytest.mark.parametrize("name", SAMPLES)
def test_unusual_texts(name: str) -> None:
    for text in ("", " ", "\0", "🙂", "e\u0301", "<|endoftext|>", "a" * 3000, "\u202eabc\x1b[31m"):
        try:
            trace = sample(name).walk([text], max_tokens=64)
        except PositionRangeError:
            assert name == "minilm"  # 512 positions
            continue
        assert trace.texts[0].n_bytes == len(text.encode())
        assert "\ufffd" not in trace.to_json()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.float64])
def test_tables_of_every_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    rows = torch.randn(256, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    save_file({"embed_tokens.weight": rows}, tmp_path / "table.safetensors")
    pipeline = Pipeline(inlayer.load(tmp_path / "table.safetensors"), tokenizer=ByteTokenizer())
    trace = pipeline.walk(["aab"])
    assert [token.row for token in trace.texts[0].tokens] == rows.double()[[97, 97, 98]].tolist()
    assert trace.gather.equal
    assert describe_token(pipeline, 97).row == rows[97].double().tolist()


def test_offsets_point_to_the_added_rows() -> None:
    """Read BERT's position and segment embeddings from the file with plain `seek`."""
    trace = sample("minilm").walk(["I love dogs"], dims=4)
    path = _files(inlayer.load("minilm"))[0]
    with path.open("rb") as stream:
        for *_, token in tokens_of(trace):
            for stage, value in zip(trace.stages, token.stages, strict=True):
                if stage.name not in ("token type", "position"):
                    assert stage.table is None
                    continue
                assert stage.table is not None
                assert value.row == (token.position if stage.name == "position" else 0)
                assert value.offset is not None
                stream.seek(value.offset)
                assert list(struct.unpack("<4f", stream.read(16))) == value.added
    sinusoidal = sample("minilm").walk(["I love dogs"], change=Change(positions="sinusoidal"))
    assert [stage.table is None for stage in sinusoidal.stages if stage.name == "position"] == [True]


@pytest.mark.parametrize("name", ["opt", "roberta"])
def test_replaced_positions_do_not_skip_padding(name: str) -> None:
    trace = family(name).walk(["I love dogs", "dogs"], change=Change(positions="sinusoidal"))
    assert [token.position for token in trace.texts[1].tokens] == [0, 1, 2]


def test_pre_tokens_refer_to_the_tokens_shown() -> None:
    pipeline = sample("default")
    truncated = pipeline.walk(["antidisestablishmentarianism and so on"], max_tokens=2)
    assert truncated.texts[0].pre_tokens is not None
    assert [one.tokens for one in truncated.texts[0].pre_tokens] == [(0, 2)]


@pytest.mark.slow
def test_texts_of_other_types_are_rejected() -> None:
    # In a process without beartype, which would raise first.
    code = """
import inlayer
for texts in (5, b"ab", [b"ab"], [5], ["a", None]):
    try:
        inlayer.walk(texts)
    except inlayer.InlayerError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all("str" in line for line in lines)


@pytest.mark.parametrize("theta", [0.5, 1.0, 1.5, 1e6])
def test_compared_scalings_equal_the_library(theta: float) -> None:
    rotary = inlayer.walk("I love dogs", theta=theta, dims=64).positions.rotary[0]
    found = {one.name: (one.frequencies, one.attention_factor) for one in rotary.rescaled}
    expected = {
        name: RotaryPositions(rotary.head_dim, RopeParameters(theta=theta, scaling=scaling)).inverse_frequencies()
        for name, scaling in COMPARED_SCALINGS.items()
        if theta > 1
    }
    assert found == {name: (frequencies.tolist(), factor) for name, (frequencies, factor) in expected.items()}
    assert all(frequencies != rotary.frequencies for frequencies, _ in found.values()) or theta < 2


def test_repr_is_one_line() -> None:
    trace = inlayer.walk(["I love dogs", "hi"])
    assert repr(trace) == f"<Trace of 2 texts through {trace.source}: hidden states {tuple(trace.shape)}>"
