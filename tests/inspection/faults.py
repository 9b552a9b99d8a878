"""Seeded faults: one function per fault, which damages a copy of a healthy checkpoint.

A `Fault` names the code of the expected finding, or part of the error message if the files become unreadable. The
healthy checkpoints are the control: they have none of these findings.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import inlayer
from tests.inspection.healthy import (
    BERT_NORM,
    BOS,
    EOS,
    FIRST,
    HEAD,
    INDEX,
    PAD,
    POSITIONS,
    ROWS,
    SECOND,
    TABLE,
    TOKENS,
    WIDTH,
    change,
    read_json,
    remove_tensor,
    set_config,
    set_header,
    set_index,
    set_rows,
    sparse_tensor,
    trained_rows,
    write_json,
)

Damage = Callable[[Path], None]


@dataclass(frozen=True)
class Fault:
    """A fault: `damage` changes a copy of the healthy checkpoint `base`."""

    damage: Damage
    expects: str  # the code of a finding, or part of the error if the severity is "unreadable"
    severity: str
    base: str

    @property
    def name(self) -> str:
        return self.damage.__name__


FAULTS: list[Fault] = []


def fault(expects: str, severity: str, base: str = "llama") -> Callable[[Damage], Damage]:
    def register(damage: Damage) -> Damage:
        FAULTS.append(Fault(damage, expects, severity, base))
        return damage

    return register


def unreadable(message: str, base: str = "llama") -> Callable[[Damage], Damage]:
    return fault(message, "unreadable", base)


# values


@fault("nan-rows", "error")
def nan_in_one_value(folder: Path) -> None:
    set_rows(folder, (300, 5), float("nan"))


@fault("nan-rows", "error")
def nan_in_a_trailing_row(folder: Path) -> None:
    set_rows(folder, (620, 0), float("nan"))


@fault("inf-rows", "error")
def infinity_in_one_value(folder: Path) -> None:
    set_rows(folder, (300, 5), -float("inf"))


@fault("inf-rows", "error")
def overflow_in_a_cast_to_float16(folder: Path) -> None:
    change(folder, TABLE, lambda table: (table * 1e7).to(torch.float16))


@fault("zero-rows", "warning")
def zero_row(folder: Path) -> None:
    set_rows(folder, 300, 0)


@fault("zero-rows", "error")
def many_zero_rows(folder: Path) -> None:
    set_rows(folder, slice(100, 200), 0)


@fault("zero-rows", "warning")
def shifted_rows(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.roll(-(PAD - 300), 0))


@fault("duplicate-rows", "warning")
def duplicate_pair(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_copy(0, torch.tensor([300]), table[[400]]))


@fault("duplicate-rows", "warning")
def tokens_reset_to_an_unused_row(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_fill(0, torch.arange(300, 340), 0) + _only(table[620], 300, 340))


def _only(row: Tensor, start: int, stop: int) -> Tensor:
    rows = torch.zeros(ROWS, WIDTH)
    rows[start:stop] = row
    return rows


@fault("repeated-rows", "error")
def shard_merged_twice(folder: Path) -> None:
    change(folder, TABLE, lambda table: torch.cat((table[:200], table[:200], table[400:])))


@fault("all-rows-identical", "error")
def identical_rows(folder: Path) -> None:
    change(folder, TABLE, lambda table: table[:1].expand(ROWS, WIDTH))


@fault("constant-rows", "warning")
def constant_rows(folder: Path) -> None:
    set_rows(folder, slice(300, 303), torch.tensor([[0.5], [0.25], [0.125]]))


@fault("norm-outliers", "warning")
def three_rows_scaled_by_1000(folder: Path) -> None:
    change(folder, TABLE, lambda table: torch.cat((table[:300], 1000 * table[300:303], table[303:])))


@fault("dominant-channel", "warning")
def one_channel_scaled_by_1000(folder: Path) -> None:
    change(folder, TABLE, lambda table: torch.cat((1000 * table[:, :1], table[:, 1:]), 1))


@fault("dead-channels", "warning")
def half_of_the_channels_zero(folder: Path) -> None:
    set_rows(folder, (slice(None), slice(WIDTH // 2, None)), 0)


@fault("scale-too-small", "warning")
def table_scaled_down(folder: Path) -> None:
    change(folder, TABLE, lambda table: table * 1e-5)


@fault("scale-too-large", "warning")
def table_scaled_up(folder: Path) -> None:
    change(folder, TABLE, lambda table: table * 1e8)


@fault("undertrained-tokens", "note")
def a_third_undertrained(folder: Path) -> None:
    unused = torch.randn(200, WIDTH, generator=torch.Generator().manual_seed(5)) * 0.0004
    change(folder, TABLE, lambda table: table.index_copy(0, torch.arange(300, 500), table[[620]] + unused))


@fault("undertrained-tokens", "note")
def one_undertrained_token(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_copy(0, torch.tensor([300]), 1.001 * table[[620]]))


@fault("random-initialization", "note")
def randomly_initialized_table(folder: Path) -> None:
    set_rows(folder, slice(None), 0.02 * torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)))


@fault("random-initialization", "note")
def uniformly_initialized_table(folder: Path) -> None:
    uniform = torch.rand(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))
    set_rows(folder, slice(None), 0.08 * (uniform - 0.5))


@fault("padding-row-nonzero", "note")
def nonzero_padding_row(folder: Path) -> None:
    set_rows(folder, PAD, 0.01)


@fault("duplicate-rows", "warning")
def duplicate_triple(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_copy(0, torch.tensor([300, 301]), table[[302, 302]]))


@fault("duplicate-rows", "warning")
def common_tokens_overwritten_by_their_mean(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_copy(0, torch.arange(260, 300), table[:260].mean(0).expand(40, -1)))


@fault("norm-outliers", "warning")
def exploding_norms(folder: Path) -> None:
    row_scale = torch.exp(3 * torch.randn(ROWS, 1, generator=torch.Generator().manual_seed(7)))
    change(folder, TABLE, lambda table: table * row_scale)


@fault("unusual-value-distribution", "warning")
def bfloat16_labeled_as_float16(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.bfloat16().view(torch.float16))


# tokens


@fault("token-ids-out-of-range", "error")
def truncated_table(folder: Path) -> None:
    for name in (TABLE, HEAD):
        change(folder, name, lambda rows: rows[:512])
    set_config(folder, vocab_size=512, bos_token_id=None, eos_token_id=None, pad_token_id=None)


@fault("token-ids-out-of-range", "error")
def special_tokens_added_without_resizing(folder: Path) -> None:
    tokenizer = read_json(folder / "tokenizer.json")
    added = tokenizer["added_tokens"][-1]
    tokenizer["added_tokens"] += [added | {"id": n, "content": f"<|tool_{n}|>"} for n in range(TOKENS, ROWS + 2)]
    write_json(folder / "tokenizer.json", tokenizer)


@fault("token-ids-out-of-range", "error")
def word_added_without_resizing(folder: Path) -> None:
    tokenizer = read_json(folder / "tokenizer.json")
    tokenizer["model"]["vocab"]["kubernetes"] = ROWS
    write_json(folder / "tokenizer.json", tokenizer)


@fault("tokenizer-too-small", "warning")
def tokenizer_of_another_model(folder: Path) -> None:
    inlayer.train_bpe(folder / "config.json", 260, folder / "tokenizer.json")


@fault("special-id-not-special", "warning")
def ordinary_token_as_eos(folder: Path) -> None:
    set_config(folder, eos_token_id=2)


@fault("special-id-not-special", "note")
def ordinary_token_as_padding(folder: Path) -> None:
    set_config(folder, pad_token_id=0)


@fault("special-id-without-token", "warning")
def bos_without_a_token(folder: Path) -> None:
    tokenizer = read_json(folder / "tokenizer.json")
    kept = [token for token in tokenizer["added_tokens"] if token["id"] != BOS]
    tokenizer["model"]["vocab"] |= {token["content"]: token["id"] for token in kept}  # keeps their ids
    tokenizer["added_tokens"] = kept
    write_json(folder / "tokenizer.json", tokenizer)


@fault("special-id-out-of-range", "error")
def padding_id_out_of_range(folder: Path) -> None:
    set_config(folder, pad_token_id=ROWS)


@fault("special-id-out-of-range", "error")
def second_eos_id_out_of_range(folder: Path) -> None:
    set_config(folder, eos_token_id=[EOS, 128009])


@fault("tokenizer-unreadable", "error")
def truncated_tokenizer(folder: Path) -> None:
    data = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(data[: len(data) // 2])


@fault("tokenizer-missing", "note")
def missing_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


@fault("tokenizer-unreadable", "warning")
def named_pipe_as_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")


@fault("tokenizer-unreadable", "warning")
def folder_as_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").mkdir()


@fault("special-id-invalid", "warning")
def eos_id_as_string(folder: Path) -> None:
    set_config(folder, eos_token_id=str(EOS))


@fault("special-id-invalid", "warning")
def eos_id_in_nested_list(folder: Path) -> None:
    set_config(folder, eos_token_id=[[EOS]])


@fault("special-id-invalid", "warning")
def negative_bos_id(folder: Path) -> None:
    set_config(folder, bos_token_id=-5)


@fault("special-id-invalid", "warning")
def eos_id_as_float(folder: Path) -> None:
    set_config(folder, eos_token_id=2.0)


# config


@fault("vocab-size-mismatch", "error")
def wrong_vocab_size(folder: Path) -> None:
    set_config(folder, vocab_size=32000)


@fault("hidden-size-mismatch", "error")
def wrong_hidden_size(folder: Path) -> None:
    set_config(folder, hidden_size=2 * WIDTH)


@fault("invalid-config", "error")
def zero_rope_theta(folder: Path) -> None:
    set_config(folder, rope_theta=0)


@fault("invalid-config", "error")
def vocab_size_as_string(folder: Path) -> None:
    set_config(folder, vocab_size="many")


@fault("unusual-rope-theta", "warning")
def tiny_rope_theta(folder: Path) -> None:
    set_config(folder, rope_theta=10.0)


@fault("unusual-rope-theta", "warning")
def huge_rope_theta(folder: Path) -> None:
    set_config(folder, rope_theta=1e30)


@fault("unusual-context-length", "warning")
def context_length_of_one(folder: Path) -> None:
    set_config(folder, max_position_embeddings=1)


@fault("context-length-below-original", "warning")
def context_length_below_original(folder: Path) -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    set_config(folder, rope_scaling=scaling | {"rope_type": "llama3"})


@fault("vocab-size-mismatch", "error")
def vocab_size_with_thousands_of_digits(folder: Path) -> None:
    set_config(folder, vocab_size=10**4000)


@fault("dtype-mismatch", "note")
def wrong_dtype_in_config(folder: Path) -> None:
    set_config(folder, torch_dtype="bfloat16")


@fault("unknown-model-type", "note")
def unknown_model_type(folder: Path) -> None:
    set_config(folder, model_type="llama99")


# head, positions and other tensors


@fault("tied-head-differs", "error")
def tied_only_by_the_flag(folder: Path) -> None:
    set_config(folder, tie_word_embeddings=True)


@fault("head-missing", "error")
def untied_without_a_head(folder: Path) -> None:
    remove_tensor(folder, HEAD)


@fault("head-shape-mismatch", "error")
def head_not_resized(folder: Path) -> None:
    change(folder, HEAD, lambda head: head[:600])


@fault("head-equals-table", "note")
def untied_but_equal(folder: Path) -> None:
    change(folder, HEAD, lambda _: load_file(folder / FIRST)[TABLE])


@fault("head-not-finite", "error")
def nan_in_the_head(folder: Path) -> None:
    set_rows(folder, (12, 3), float("nan"), HEAD)


@fault("head-zero-rows", "error")
def head_of_zeros(folder: Path) -> None:
    set_rows(folder, slice(None), 0, HEAD)


@fault("head-zero-rows", "error")
def half_of_the_head_zero(folder: Path) -> None:
    set_rows(folder, slice(ROWS // 2, None), 0, HEAD)


@fault("head-duplicate-rows", "error")
def head_of_ones(folder: Path) -> None:
    set_rows(folder, slice(None), 1, HEAD)


@fault("head-duplicate-rows", "warning")
def duplicate_rows_in_the_head(folder: Path) -> None:
    change(folder, HEAD, lambda head: head.index_copy(0, torch.arange(300, 320), head[[320]].expand(20, -1)))


@fault("head-scale-mismatch", "warning")
def head_scaled_by_1000(folder: Path) -> None:
    change(folder, HEAD, lambda head: 1000 * head)


@fault("head-shape-mismatch", "error")
def head_claims_billions_of_rows(folder: Path) -> None:
    sparse_tensor(folder / SECOND, HEAD, (2**34, 16))


@fault("head-unreadable", "warning")
def missing_head_shard(folder: Path) -> None:
    (folder / SECOND).unlink()


@fault("ambiguous-table", "warning")
def second_table(folder: Path) -> None:
    save_file(load_file(folder / SECOND) | {"embed_tokens.weight": trained_rows().flip(0)}, folder / SECOND)
    set_index(folder, "embed_tokens.weight", SECOND)


@fault("positions-too-few", "error", "bert")
def truncated_positions(folder: Path) -> None:
    change(folder, POSITIONS, lambda positions: positions[:100])


@fault("tensor-not-finite", "error", "bert")
def nan_in_a_position(folder: Path) -> None:
    set_rows(folder, (3, 3), float("nan"), POSITIONS)


@fault("tensor-not-finite", "error", "bert")
def infinity_in_the_layer_norm(folder: Path) -> None:
    set_rows(folder, 3, float("inf"), BERT_NORM)


@fault("positions-zero", "error", "bert")
def positions_of_zeros(folder: Path) -> None:
    set_rows(folder, slice(None), 0, POSITIONS)


@fault("positions-zero", "warning", "bert")
def last_positions_zero(folder: Path) -> None:
    set_rows(folder, slice(126, None), 0, POSITIONS)


@fault("positions-identical", "error", "bert")
def identical_positions(folder: Path) -> None:
    change(folder, POSITIONS, lambda positions: positions[:1].expand_as(positions))


@fault("positions-scale-mismatch", "warning", "bert")
def positions_scaled_by_1000(folder: Path) -> None:
    change(folder, POSITIONS, lambda positions: 1000 * positions)


@fault("tensor-shape-mismatch", "error", "bert")
def layer_norm_of_another_width(folder: Path) -> None:
    change(folder, BERT_NORM, lambda norm: norm[: WIDTH // 2])


@fault("tensor-too-large", "warning", "bert")
def a_million_token_types(folder: Path) -> None:
    rows = 2**26 // WIDTH + 1  # one more than is read
    set_config(folder, type_vocab_size=rows)
    sparse_tensor(folder / "model.safetensors", "bert.embeddings.token_type_embeddings.weight", (rows, WIDTH))


@fault("tensor-missing", "error", "bert")
def missing_positions(folder: Path) -> None:
    remove_tensor(folder, POSITIONS)


# files


@unreadable("cut short")
def truncated_shard(folder: Path) -> None:
    data = (folder / FIRST).read_bytes()
    (folder / FIRST).write_bytes(data[:-1000])


@unreadable("its header is")
def header_claims_a_terabyte(folder: Path) -> None:
    data = (folder / FIRST).read_bytes()
    (folder / FIRST).write_bytes(struct.pack("<Q", 2**40) + data[8:])


@unreadable("which does not match its")
def header_claims_a_wrong_shape(folder: Path) -> None:
    set_header(folder / FIRST, lambda header: header[TABLE].update(shape=[ROWS, 2 * WIDTH]))


@unreadable("overlap", "bert")
def overlapping_tensors(folder: Path) -> None:
    def overlap(header: dict[str, Any]) -> None:
        header[BERT_NORM]["data_offsets"] = header["bert.embeddings.LayerNorm.bias"]["data_offsets"]

    set_header(folder / "model.safetensors", overlap)


@unreadable("unknown dtype")
def unknown_dtype(folder: Path) -> None:
    set_header(folder / FIRST, lambda header: header[TABLE].update(dtype="F12"))


@unreadable("has dtype I32")
def integer_table(folder: Path) -> None:
    change(folder, TABLE, lambda table: (1000 * table).to(torch.int32))


@unreadable("is missing the file")
def missing_table_shard(folder: Path) -> None:
    (folder / FIRST).unlink()


@unreadable("plain file name")
def index_points_outside_the_folder(folder: Path) -> None:
    set_index(folder, TABLE, "../other/model.safetensors")


@unreadable("the index says tensor")
def index_names_the_wrong_shard(folder: Path) -> None:
    set_index(folder, TABLE, SECOND)


@unreadable("valid JSON")
def truncated_index(folder: Path) -> None:
    (folder / INDEX).write_text((folder / INDEX).read_text()[:-20])


@unreadable("valid JSON")
def truncated_config(folder: Path) -> None:
    (folder / "config.json").write_text((folder / "config.json").read_text()[:-20])


@unreadable("symbolic link that points outside its folder")
def symlink_out_of_the_folder(folder: Path) -> None:
    elsewhere = folder.parent / f"{folder.name}-elsewhere.safetensors"
    (folder / FIRST).rename(elsewhere)
    (folder / FIRST).symlink_to(elsewhere)


@unreadable("git-lfs pointer")
def git_lfs_pointer_as_weights(folder: Path) -> None:
    (folder / FIRST).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


@unreadable("no weights")
def missing_weights(folder: Path) -> None:
    for file in (FIRST, SECOND, INDEX):
        (folder / file).unlink()
