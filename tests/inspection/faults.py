"""Seeded faults: functions that each damage a copy of a healthy checkpoint.

A `Fault` names the code of the finding that must come out, or, where the files cannot be read any more, the words of
the error. The healthy ones are the control: they have none of these codes.
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
    PLACES,
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
    """`damage` works on a copy of the healthy folder `base`."""

    damage: Damage
    finds: str  # the code of a finding; where the severity is "unreadable", words of the error
    severity: str
    base: str

    @property
    def name(self) -> str:
        return self.damage.__name__


FAULTS: list[Fault] = []


def fault(finds: str, severity: str, base: str = "llama") -> Callable[[Damage], Damage]:
    def note(damage: Damage) -> Damage:
        FAULTS.append(Fault(damage, finds, severity, base))
        return damage

    return note


def unreadable(says: str, base: str = "llama") -> Callable[[Damage], Damage]:
    return fault(says, "unreadable", base)


# values


@fault("nan-rows", "error")
def one_nan(folder: Path) -> None:
    set_rows(folder, (300, 5), float("nan"))


@fault("nan-rows", "error")
def nan_in_a_row_past_the_tokens(folder: Path) -> None:
    set_rows(folder, (620, 0), float("nan"))


@fault("inf-rows", "error")
def one_infinity(folder: Path) -> None:
    set_rows(folder, (300, 5), -float("inf"))


@fault("inf-rows", "error")
def cast_that_overflowed(folder: Path) -> None:
    change(folder, TABLE, lambda table: (table * 1e7).to(torch.float16))


@fault("zero-rows", "warning")
def a_token_without_values(folder: Path) -> None:
    set_rows(folder, 300, 0)


@fault("zero-rows", "error")
def many_tokens_without_values(folder: Path) -> None:
    set_rows(folder, slice(100, 200), 0)


@fault("zero-rows", "warning")
def rows_moved_by_one(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.roll(-(PAD - 300), 0))


@fault("duplicate-rows", "warning")
def two_tokens_share_a_row(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_copy(0, torch.tensor([300]), table[[400]]))


@fault("duplicate-rows", "warning")
def tokens_reset_to_an_unused_row(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_fill(0, torch.arange(300, 340), 0) + _only(table[620], 300, 340))


def _only(row: Tensor, start: int, stop: int) -> Tensor:
    rows = torch.zeros(ROWS, WIDTH)
    rows[start:stop] = row
    return rows


@fault("block-repeated", "error")
def a_shard_pasted_twice(folder: Path) -> None:
    change(folder, TABLE, lambda table: torch.cat((table[:200], table[:200], table[400:])))


@fault("rows-all-equal", "error")
def every_row_the_same(folder: Path) -> None:
    change(folder, TABLE, lambda table: table[:1].expand(ROWS, WIDTH))


@fault("constant-rows", "warning")
def rows_without_their_scale(folder: Path) -> None:
    set_rows(folder, slice(300, 303), torch.tensor([[0.5], [0.25], [0.125]]))


@fault("norm-outliers", "warning")
def rows_a_thousand_times_too_long(folder: Path) -> None:
    change(folder, TABLE, lambda table: torch.cat((table[:300], 1000 * table[300:303], table[303:])))


@fault("one-channel", "warning")
def one_channel_exploded(folder: Path) -> None:
    change(folder, TABLE, lambda table: torch.cat((1000 * table[:, :1], table[:, 1:]), 1))


@fault("dead-channels", "warning")
def half_of_the_columns_lost(folder: Path) -> None:
    set_rows(folder, (slice(None), slice(WIDTH // 2, None)), 0)


@fault("rows-tiny", "warning")
def scale_applied_twice(folder: Path) -> None:
    change(folder, TABLE, lambda table: table * 1e-5)


@fault("rows-huge", "warning")
def quantized_values_without_a_scale(folder: Path) -> None:
    change(folder, TABLE, lambda table: table * 1e8)


@fault("never-trained", "warning")
def a_third_never_trained(folder: Path) -> None:
    unused = torch.randn(200, WIDTH, generator=torch.Generator().manual_seed(5)) * 0.0004
    change(folder, TABLE, lambda table: table.index_copy(0, torch.arange(300, 500), table[[620]] + unused))


@fault("never-trained", "note")
def a_glitch_token(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_copy(0, torch.tensor([300]), 1.001 * table[[620]]))


@fault("newborn", "note")
def a_table_that_was_never_saved(folder: Path) -> None:
    set_rows(folder, slice(None), 0.02 * torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)))


@fault("padding-row-not-zero", "note")
def a_padding_row_that_learned(folder: Path) -> None:
    set_rows(folder, PAD, 0.01)


@fault("duplicate-rows", "warning")
def three_tokens_share_a_row(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_copy(0, torch.tensor([300, 301]), table[[302, 302]]))


@fault("duplicate-rows", "warning")
def common_tokens_overwritten_by_one_row(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.index_copy(0, torch.arange(260, 300), table[:260].mean(0).expand(40, -1)))


@fault("norm-outliers", "warning")
def norms_that_explode(folder: Path) -> None:
    stretch = torch.exp(3 * torch.randn(ROWS, 1, generator=torch.Generator().manual_seed(7)))
    change(folder, TABLE, lambda table: table * stretch)


@fault("values-odd", "warning")
def bfloat16_labeled_as_float16(folder: Path) -> None:
    change(folder, TABLE, lambda table: table.bfloat16().view(torch.float16))


# tokens


@fault("ids-past-table", "error")
def a_table_cut_too_short(folder: Path) -> None:
    for name in (TABLE, HEAD):
        change(folder, name, lambda rows: rows[:512])
    set_config(folder, vocab_size=512, bos_token_id=None, eos_token_id=None, pad_token_id=None)


@fault("ids-past-table", "error")
def tokens_added_without_a_resize(folder: Path) -> None:
    tokenizer = read_json(folder / "tokenizer.json")
    added = tokenizer["added_tokens"][-1]
    tokenizer["added_tokens"] += [added | {"id": n, "content": f"<|tool_{n}|>"} for n in range(TOKENS, ROWS + 2)]
    write_json(folder / "tokenizer.json", tokenizer)


@fault("ids-past-table", "error")
def words_added_without_a_resize(folder: Path) -> None:
    tokenizer = read_json(folder / "tokenizer.json")
    tokenizer["model"]["vocab"]["kubernetes"] = ROWS
    write_json(folder / "tokenizer.json", tokenizer)


@fault("tokenizer-too-small", "warning")
def the_tokenizer_of_another_model(folder: Path) -> None:
    inlayer.train_bpe(folder / "config.json", 260, folder / "tokenizer.json")


@fault("special-id-is-ordinary", "warning")
def the_text_ends_at_an_ordinary_token(folder: Path) -> None:
    set_config(folder, eos_token_id=2)


@fault("special-id-is-ordinary", "note")
def padding_with_an_ordinary_token(folder: Path) -> None:
    set_config(folder, pad_token_id=0)


@fault("special-id-without-token", "warning")
def a_hole_where_the_text_begins(folder: Path) -> None:
    tokenizer = read_json(folder / "tokenizer.json")
    kept = [token for token in tokenizer["added_tokens"] if token["id"] != BOS]
    tokenizer["model"]["vocab"] |= {token["content"]: token["id"] for token in kept}  # else the others would close up
    tokenizer["added_tokens"] = kept
    write_json(folder / "tokenizer.json", tokenizer)


@fault("special-id-past-table", "error")
def padding_outside_the_table(folder: Path) -> None:
    set_config(folder, pad_token_id=ROWS)


@fault("special-id-past-table", "error")
def one_of_two_ends_outside_the_table(folder: Path) -> None:
    set_config(folder, eos_token_id=[EOS, 128009])


@fault("tokenizer-unreadable", "error")
def a_tokenizer_cut_short(folder: Path) -> None:
    data = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(data[: len(data) // 2])


@fault("no-tokenizer", "note")
def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


@fault("tokenizer-unreadable", "warning")
def a_pipe_for_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")


@fault("tokenizer-unreadable", "warning")
def a_folder_for_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").mkdir()


@fault("special-id-odd", "warning")
def an_end_in_quotes(folder: Path) -> None:
    set_config(folder, eos_token_id=str(EOS))


@fault("special-id-odd", "warning")
def an_end_within_two_lists(folder: Path) -> None:
    set_config(folder, eos_token_id=[[EOS]])


@fault("special-id-odd", "warning")
def a_beginning_below_zero(folder: Path) -> None:
    set_config(folder, bos_token_id=-5)


@fault("special-id-odd", "warning")
def an_end_with_a_point(folder: Path) -> None:
    set_config(folder, eos_token_id=2.0)


# config


@fault("config-rows-differ", "error")
def a_vocab_size_of_another_model(folder: Path) -> None:
    set_config(folder, vocab_size=32000)


@fault("config-width-differs", "error")
def a_hidden_size_of_another_model(folder: Path) -> None:
    set_config(folder, hidden_size=2 * WIDTH)


@fault("config-refused", "error")
def a_rotary_base_of_zero(folder: Path) -> None:
    set_config(folder, rope_theta=0)


@fault("config-refused", "error")
def a_vocab_size_in_words(folder: Path) -> None:
    set_config(folder, vocab_size="many")


@fault("rope-theta-odd", "warning")
def a_rotary_base_in_thousands(folder: Path) -> None:
    set_config(folder, rope_theta=10.0)


@fault("rope-theta-odd", "warning")
def a_rotary_base_past_all_others(folder: Path) -> None:
    set_config(folder, rope_theta=1e30)


@fault("context-odd", "warning")
def a_context_of_one(folder: Path) -> None:
    set_config(folder, max_position_embeddings=1)


@fault("context-below-original", "warning")
def a_context_below_the_original(folder: Path) -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    set_config(folder, rope_scaling=scaling | {"rope_type": "llama3"})


@fault("config-rows-differ", "error")
def a_vocab_size_of_thousands_of_digits(folder: Path) -> None:
    set_config(folder, vocab_size=10**4000)


@fault("dtype-differs", "note")
def another_dtype_than_the_config_says(folder: Path) -> None:
    set_config(folder, torch_dtype="bfloat16")


@fault("unknown-family", "note")
def a_family_nobody_knows(folder: Path) -> None:
    set_config(folder, model_type="llama99")


# head and other parts


@fault("tied-head-differs", "error")
def tied_by_the_flag_alone(folder: Path) -> None:
    set_config(folder, tie_word_embeddings=True)


@fault("head-missing", "error")
def untied_without_a_head(folder: Path) -> None:
    remove_tensor(folder, HEAD)


@fault("head-shape-differs", "error")
def a_head_that_was_not_resized(folder: Path) -> None:
    change(folder, HEAD, lambda head: head[:600])


@fault("head-equals-table", "note")
def untied_and_equal(folder: Path) -> None:
    change(folder, HEAD, lambda _: load_file(folder / FIRST)[TABLE])


@fault("head-not-finite", "error")
def nan_in_the_head(folder: Path) -> None:
    set_rows(folder, (12, 3), float("nan"), HEAD)


@fault("head-rows-zero", "error")
def a_head_of_zeros(folder: Path) -> None:
    set_rows(folder, slice(None), 0, HEAD)


@fault("head-rows-zero", "error")
def half_of_the_head_lost(folder: Path) -> None:
    set_rows(folder, slice(ROWS // 2, None), 0, HEAD)


@fault("head-rows-equal", "error")
def a_head_of_ones(folder: Path) -> None:
    set_rows(folder, slice(None), 1, HEAD)


@fault("head-rows-equal", "warning")
def rows_of_the_head_repeated(folder: Path) -> None:
    change(folder, HEAD, lambda head: head.index_copy(0, torch.arange(300, 320), head[[320]].expand(20, -1)))


@fault("head-out-of-scale", "warning")
def a_head_a_thousand_times_too_large(folder: Path) -> None:
    change(folder, HEAD, lambda head: 1000 * head)


@fault("head-shape-differs", "error")
def a_head_of_billions_of_rows(folder: Path) -> None:
    sparse_tensor(folder / SECOND, HEAD, (2**34, 16))


@fault("head-unreadable", "warning")
def the_shard_of_the_head_is_missing(folder: Path) -> None:
    (folder / SECOND).unlink()


@fault("two-tables", "warning")
def two_tables(folder: Path) -> None:
    save_file(load_file(folder / SECOND) | {"embed_tokens.weight": trained_rows().flip(0)}, folder / SECOND)
    set_index(folder, "embed_tokens.weight", SECOND)


@fault("positions-too-short", "error", "bert")
def positions_cut_short(folder: Path) -> None:
    change(folder, PLACES, lambda positions: positions[:100])


@fault("part-not-finite", "error", "bert")
def nan_in_a_position(folder: Path) -> None:
    set_rows(folder, (3, 3), float("nan"), PLACES)


@fault("part-not-finite", "error", "bert")
def infinity_in_the_norm(folder: Path) -> None:
    set_rows(folder, 3, float("inf"), BERT_NORM)


@fault("positions-zero", "error", "bert")
def positions_of_zeros(folder: Path) -> None:
    set_rows(folder, slice(None), 0, PLACES)


@fault("positions-zero", "warning", "bert")
def positions_that_end_in_zeros(folder: Path) -> None:
    set_rows(folder, slice(126, None), 0, PLACES)


@fault("positions-equal", "error", "bert")
def positions_all_equal(folder: Path) -> None:
    change(folder, PLACES, lambda positions: positions[:1].expand_as(positions))


@fault("positions-out-of-scale", "warning", "bert")
def positions_a_thousand_times_too_large(folder: Path) -> None:
    change(folder, PLACES, lambda positions: 1000 * positions)


@fault("part-shape-differs", "error", "bert")
def a_norm_of_another_width(folder: Path) -> None:
    change(folder, BERT_NORM, lambda norm: norm[: WIDTH // 2])


@fault("part-too-large", "warning", "bert")
def token_types_by_the_million(folder: Path) -> None:
    set_config(folder, type_vocab_size=2**22)
    sparse_tensor(folder / "model.safetensors", "bert.embeddings.token_type_embeddings.weight", (2**22, WIDTH))


@fault("layer-incomplete", "error", "bert")
def positions_are_missing(folder: Path) -> None:
    remove_tensor(folder, PLACES)


# files


@unreadable("cut short")
def a_shard_cut_short(folder: Path) -> None:
    data = (folder / FIRST).read_bytes()
    (folder / FIRST).write_bytes(data[:-1000])


@unreadable("claims a header of")
def a_header_of_a_terabyte(folder: Path) -> None:
    data = (folder / FIRST).read_bytes()
    (folder / FIRST).write_bytes(struct.pack("<Q", 2**40) + data[8:])


@unreadable("does not fill its")
def a_header_that_lies_about_the_shape(folder: Path) -> None:
    set_header(folder / FIRST, lambda header: header[TABLE].update(shape=[ROWS, 2 * WIDTH]))


@unreadable("overlap", "bert")
def tensors_that_overlap(folder: Path) -> None:
    def overlap(header: dict[str, Any]) -> None:
        header[BERT_NORM]["data_offsets"] = header["bert.embeddings.LayerNorm.bias"]["data_offsets"]

    set_header(folder / "model.safetensors", overlap)


@unreadable("unknown dtype")
def a_dtype_nobody_knows(folder: Path) -> None:
    set_header(folder / FIRST, lambda header: header[TABLE].update(dtype="F12"))


@unreadable("floating point")
def a_table_of_whole_numbers(folder: Path) -> None:
    change(folder, TABLE, lambda table: (1000 * table).to(torch.int32))


@unreadable("lacks the file")
def the_shard_of_the_table_is_missing(folder: Path) -> None:
    (folder / FIRST).unlink()


@unreadable("plain file name")
def an_index_that_leads_out_of_the_folder(folder: Path) -> None:
    set_index(folder, TABLE, "../other/model.safetensors")


@unreadable("does not hold it")
def an_index_that_names_the_wrong_shard(folder: Path) -> None:
    set_index(folder, TABLE, SECOND)


@unreadable("is no valid JSON")
def an_index_cut_short(folder: Path) -> None:
    (folder / INDEX).write_text((folder / INDEX).read_text()[:-20])


@unreadable("not valid JSON")
def a_config_cut_short(folder: Path) -> None:
    (folder / "config.json").write_text((folder / "config.json").read_text()[:-20])


@unreadable("symbolic link out of its folder")
def a_link_out_of_the_folder(folder: Path) -> None:
    elsewhere = folder.parent / f"{folder.name}-elsewhere.safetensors"
    (folder / FIRST).rename(elsewhere)
    (folder / FIRST).symlink_to(elsewhere)


@unreadable("git-lfs pointer")
def a_pointer_instead_of_the_weights(folder: Path) -> None:
    (folder / FIRST).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


@unreadable("holds no weights")
def no_weights(folder: Path) -> None:
    for file in (FIRST, SECOND, INDEX):
        (folder / file).unlink()
