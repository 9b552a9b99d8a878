"""The walk page: the files in page/, assembled into one self-contained HTML document (no external requests).

trace -> [html] -> browser
- a served page calls its server's API. An exported page works from disk and contains its data: the walk, another walk
  for each change that the controls offer, their scenes, the tokens with their neighbors, the initialization of the
  table, a sample of its values, its map, and a step of learning
- plain JavaScript in small files that share one scope, in the order below, without a build step
Tested in Chromium in tests/browser/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

from inlayer.checkpoint.open import SAMPLES
from inlayer.errors import ConfigError, PositionRangeError
from inlayer.facts_base import plain
from inlayer.geometry.map_page import MAP_SCRIPTS, embedded_map, map_files
from inlayer.positions import SCHEMES
from inlayer.render import Page, embed_json, read_files, settings_script, style_sheet
from inlayer.trace.facts import Change, Trace
from inlayer.trace.gradient_step import take_gradient_step
from inlayer.trace.pipeline import Pipeline
from inlayer.trace.scene import describe_scene
from inlayer.trace.token_facts import describe_token, initialize

STYLES = ("layout.css", "parts.css", "figures.css", "scene.css", "scene-figures.css", "map-pane.css")
SCRIPTS = (
    "dom.js", "format.js", "glide.js", "colors.js", "state.js", "source.js", "grid.js", "changes.js", "effects.js",
    "steps/text.js", "steps/ids.js", "steps/ngrams.js", "steps/per_layer.js", "steps/rows.js", "dial.js",
    "clocks.js", "steps/relative.js", "steps/positions.js", "steps/hidden.js", "learning.js", "steps/backward.js",
    "inspector.js", "formulas.js", "formulas_positions.js", "token.js", "questions.js", "predict.js",
    "initialization.js", "controls.js", "rejected.js", "chips.js", "merges.js", "scene.js", "heat_strips.js",
    "scene_paint.js", "compare_view.js", "steps.js", "keys.js", "map_pane.js", "main.js",
)  # fmt: skip
SECOND_MODEL = "minilm"  # the sample that the page suggests for a comparison
MAX_SWAPPED = 8  # any two of these first tokens can be swapped; fewer in a long text
MAX_SWAP_TOKENS = 300  # total tokens in all walks with a swap, so the file stays small enough to send
THETAS = (100.0, 1_000_000.0)
MAX_TOKENS = 64  # limit per text
MAX_TOKEN_PANELS = 64  # number of tokens that can be opened
MAX_SCENES = 1_500_000  # characters of all scenes; the walk itself comes first
HEAD_TOKENS = 12  # number of tokens whose rotation is shown


def export(
    pipeline: Pipeline, texts: Sequence[str], *, dims: int = 8, step: int = 1, change: Change | None = None
) -> str:
    """Build the page of one walk and of the changes a reader can try on it."""

    def walk(change: Change) -> Trace:
        trace = pipeline.walk(texts, dims=dims, max_tokens=MAX_TOKENS, change=change)
        return replace(trace, source=pipeline.title)

    own = {key_of(option): option for option in (Change(), change or Change())}
    walks = {key: walk(option) for key, option in own.items()}
    first = walks[key_of(Change())]
    for option in _changes(pipeline, first):
        with suppress(PositionRangeError):  # the text is too long for these positions
            walks[key_of(option)] = walk(option)
    ids = list(dict.fromkeys(token.id for text in first.texts for token in text.tokens if token.id is not None))
    data: dict[str, Any] = {
        "models": [plain(replace(pipeline.facts(), name=pipeline.title, source=pipeline.title))],
        "texts": list(texts),
        "walks": {key: trace.to_dict() for key, trace in walks.items()},
        "tokens": {str(token_id): plain(describe_token(pipeline, token_id)) for token_id in ids[:MAX_TOKEN_PANELS]},
        "attention_heads": {  # without the changes that the page applies itself
            key: _attention_head(pipeline, texts, trace)
            for key, trace in walks.items()
            if trace.positions.rotary and trace.change.swap is None and not trace.change.pad
        },
        "initialization": plain(initialize(pipeline, dims=dims)),
        "step": step,
        "change": None if change is None else key_of(change),
        "scene": _scenes(pipeline, texts, walks),
        "table_scene": plain(pipeline.table_scene),
    }
    projection, data["map"] = embedded_map(
        pipeline.stored_table, lambda: pipeline.vocabulary, remote=pipeline.table.remote
    )
    data["gradient_step"] = {
        key: plain(take_gradient_step(pipeline, texts, max_tokens=MAX_TOKENS, change=option, projection=projection))
        for key, option in own.items()
    }
    return page(title=f"inlayer: {texts[0][:60]}", data=data)


def _scenes(pipeline: Pipeline, texts: Sequence[str], walks: dict[str, Trace]) -> dict[str, Any]:
    """Return the scenes that fit into the file, by the key of their walk."""
    scenes: dict[str, Any] = {}
    size = 0
    for key, trace in walks.items():
        scene = describe_scene(pipeline, texts, change=trace.change, max_tokens=MAX_TOKENS)
        size += sum(len(strip.values) for strip in vars(scene.strips).values() if strip is not None)
        if size > MAX_SCENES and scenes:
            break
        scenes[key] = plain(scene)
    return scenes


def _attention_head(pipeline: Pipeline, texts: Sequence[str], trace: Trace) -> dict[str, Any]:
    """Collect the data for the dial: the channels of one attention head, and the frequencies of all its pairs."""
    channels = min(512, 2 * max(rotary.n_pairs for rotary in trace.positions.rotary))
    walked = pipeline.walk(texts, dims=channels, max_tokens=HEAD_TOKENS, change=trace.change)
    shown = [token for token in walked.texts[0].tokens if token.mask]
    tokens = [{"id": token.id, "label": token.label, "hidden": plain(token.hidden)} for token in shown]
    return {"tokens": tokens, "rotary": plain(walked.positions.rotary)}


def key_of(change: Change) -> str:
    """Build the key under which the page finds a walk, with one part per field."""
    theta = "" if change.theta is None else repr(float(change.theta))
    swap = "" if change.swap is None else ",".join(map(str, change.swap))
    return f"{change.positions or ''}|{theta}|{swap}|{change.pad}"


def _changes(pipeline: Pipeline, trace: Trace) -> Iterator[Change]:
    swapped = min(MAX_SWAPPED, trace.texts[0].n_tokens)
    tokens = sum(len(text.tokens) for text in trace.texts)
    while swapped > 2 and swapped * (swapped - 1) // 2 * tokens > MAX_SWAP_TOKENS:
        swapped -= 1
    for swap in combinations(range(swapped), 2):
        yield Change(swap=swap)
    if pipeline.padding_id is not None:
        yield Change(pad=1)
    candidates = [Change(positions=scheme) for scheme in SCHEMES]
    candidates += [Change(positions="rotary", theta=theta) for theta in THETAS]
    for change in candidates:
        with suppress(ConfigError):  # a table too narrow for rotary pairs, or RoPE scaling that rejects the base
            pipeline.active_layer(change.positions, change.theta)
            yield change


@cache
def _page() -> Page:
    second = {"name": SECOND_MODEL, "install": SAMPLES[SECOND_MODEL].install_command}
    constants = f"const SECOND_MODEL = {embed_json(second)};"
    parts = [map_files(*MAP_SCRIPTS), settings_script(), constants, *map(read_part, SCRIPTS)]
    script = "\n(() => {\n" + '"use strict";\n' + "\n".join(parts) + "})();\n"
    return Page(read_part("page.html"), shared_style(), script)


def page(*, title: str, data: dict[str, Any] | None) -> str:
    """Build the whole document. `data` is the content of an exported page, or None for a served page."""
    return _page().document(title, data, mode="served" if data is None else "exported")


@cache
def content_security_policy(*, served: bool) -> str:
    """Build the page's policy: a header for a served page, a meta element in an exported one."""
    # The course frames this page next to a lesson.
    return _page().policy(*("connect-src 'self'", "frame-ancestors 'self'") if served else ())


@cache
def shared_style() -> str:
    """Join the style sheets of the walk page, which the course page also uses."""
    return "\n" + "\n".join([style_sheet(), map_files("map_canvas.css"), *map(read_part, STYLES)])


def read_part(name: str, package: str = "inlayer.trace") -> str:
    return read_files(package, f"page/{name}")
