"""Tables and plots of the tying study; tables are inserted between the markers of docs/tying.md."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tying import FACTORS, LEARNING_RATE, SEEDS, TIED_DEFAULT, UNTIED_DEFAULT, VARIANTS

Run = Mapping[str, Any]
DOCUMENT = Path(__file__).parent.parent / "docs" / "tying.md"
INK, FAINT = "#3d4a57", "#d7dde3"
COLORS = {1: "#4c78a8", 3: "#59a14f", 10: "#e0912f", 30: "#c8553d"}
MAX_LOSS = 9.0  # upper limit of the loss axis
MARKED = re.compile(r"(<!-- generated: (?P<name>[a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(runs: Sequence[Run], out: Path, document: Path = DOCUMENT) -> None:
    """Draw the plots and update the tables of the document."""
    draw_losses(runs, out / "losses.png")
    draw_table(runs, out / "table.png")
    draw_rates(runs, out / "rates.png")
    tables = {
        "progress": progress(runs),
        "references": table(runs, ["reference"]),
        "alone": table(runs, ["alone"]),
        "combined": table(runs, ["combined"]),
        "conclusion": conclusion(runs),
        "table": table_statistics(runs),
    }
    text = document.read_text(encoding="utf-8")
    missing = set(tables) - {found["name"] for found in MARKED.finditer(text)}
    assert not missing, f"{document} has no markers for {missing}"
    document.write_text(MARKED.sub(lambda m: m[1] + tables[m["name"]] + m[3], text), encoding="utf-8")


# ---- tables


def progress(runs: Sequence[Run]) -> str:
    """How much of the study is done."""
    wanted = len(VARIANTS) * len(FACTORS) * len(SEEDS)
    seconds = sum(run["seconds"] for run in runs)
    rest = "" if len(runs) == wanted else f"; **{wanted - len(runs)} are missing**, so spreads cover fewer seeds"
    return f"{len(runs)} of {wanted} runs, {seconds / 3600:.1f} core hours{rest}.\n"


def table(runs: Sequence[Run], kinds: Iterable[str]) -> str:
    """Table of validation losses by variant and learning rate."""
    lines = [
        "| | " + " | ".join(f"x{factor}" for factor in FACTORS) + " | failed |",
        "|---|" + "---|" * (len(FACTORS) + 1),
    ]
    for variant in VARIANTS:
        if variant.kind in kinds and (own := of(runs, variant.name)):
            cells = [cell([run for run in own if run["factor"] == factor]) for factor in FACTORS]
            failures = count_failed(own)
            lines.append(f"| **{variant.name}**: {variant.about} | {' | '.join(cells)} | {failures} |")
    return "\n".join(lines) + "\n"


def cell(runs: Sequence[Run]) -> str:
    """Mean over seeds, half their spread, and the number of failed runs."""
    losses = [run["validation_loss"] for run in runs if run["validation_loss"] is not None]
    failed = ", ".join(f"{count} {word}" for word in FAILURES if (count := sum(run[word] for run in runs)))
    text = f"{statistics.fmean(losses):.3f} ± {(max(losses) - min(losses)) / 2:.3f}" if losses else "not finite"
    return f"{text} ({failed})" if failed else text


def count_failed(runs: Sequence[Run]) -> str:
    return f"{sum(has_failed(run) for run in runs)} of {len(runs)}"


def has_failed(run: Run) -> bool:
    return any(run[word] for word in FAILURES)


def table_statistics(runs: Sequence[Run]) -> str:
    """Statistics of the table at the end of training."""
    lines = [
        "| | learning rate | mean-vector ratio | largest row norm | logit std | gradient share of the head | spikes |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("untied", "tied", TIED_DEFAULT):
        for factor in FACTORS:
            own = [run for run in of(runs, name) if run["factor"] == factor]
            if own:
                values = [mean(run[field] for run in own) for field in FIELDS]
                lines.append(f"| {name} | x{factor} | {' | '.join(values)} | {sum(run['spikes'] for run in own)} |")
    return "\n".join(lines) + "\n"


FAILURES = ("diverged", "collapsed")
FIELDS = ("mean_vector_ratio", "row_norm_max", "logit_std", "head_gradient_share")


def mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.fmean(known):.3g}" if known else "-"


def best(runs: Sequence[Run], name: str) -> tuple[int, list[float]]:
    """The learning rate with the lowest final loss of a variant, and its losses by seed."""
    by_factor = {
        factor: sorted((run["seed"], run["validation_loss"]) for run in of(runs, name) if run["factor"] == factor)
        for factor in FACTORS
        if not any(has_failed(run) for run in of(runs, name) if run["factor"] == factor)
    }
    by_factor = {factor: losses for factor, losses in by_factor.items() if losses}
    chosen = min(by_factor, key=lambda factor: statistics.fmean(loss for _, loss in by_factor[factor]))
    return chosen, [loss for _, loss in by_factor[chosen]]


def conclusion(runs: Sequence[Run]) -> str:
    """Every variant at its best learning rate, compared with the best untied one seed by seed."""
    untied = [variant.name for variant in VARIANTS if variant.name.startswith("untied") and variant.kind == "reference"]
    reference = min(untied, key=lambda name: statistics.fmean(best(runs, name)[1]))
    factor, losses = best(runs, reference)
    lines = [
        "| at its best learning rate | validation loss | difference from the best untied run, by seed | failed |",
        "|---|---|---|---|",
        f"| **{reference}** | x{factor}: {statistics.fmean(losses):.3f} | | {count_failed(of(runs, reference))} |",
    ]
    for variant in VARIANTS:
        if variant.name != reference and of(runs, variant.name):
            factor, own = best(runs, variant.name)
            differences = [one - other for one, other in zip(own, losses, strict=False)]
            by_seed = f"{statistics.fmean(differences):+.3f} ({', '.join(f'{value:+.3f}' for value in differences)})"
            cells = [
                variant.name,
                f"x{factor}: {statistics.fmean(own):.3f}",
                by_seed,
                count_failed(of(runs, variant.name)),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def of(runs: Sequence[Run], name: str) -> list[Run]:
    return [run for run in runs if run["variant"] == name]


# ---- plots


def draw_losses(runs: Sequence[Run], path: Path) -> None:
    """Loss curves: one panel per variant, one color per learning rate, one line per seed."""
    draw_curves(runs, path, ("untied", "tied", "tuned AdamW", TIED_DEFAULT), "loss", "smoothed training loss")


def draw_table(runs: Sequence[Run], path: Path) -> None:
    """Statistics of the table over training, for two tied variants."""
    import matplotlib.pyplot as plt

    fields = {
        "mean_vector_ratio": "mean-vector ratio",
        "row_norm_mean": "mean row norm",
        "logit_std": "std of the logits",
        "head_gradient_share": "gradient share of the head",
    }
    figure, panels = plt.subplots(2, 4, figsize=(14, 6), sharex=True, sharey="col", layout="constrained")
    for row, name in zip(panels, ("tied", TIED_DEFAULT), strict=True):
        for panel, (field, title) in zip(row, fields.items(), strict=True):
            plot_curves(panel, of(runs, name), field)
            panel.set_title(f"{name}:\n{title}", fontsize=9, loc="left", color=INK)
            if field in {"row_norm_mean", "logit_std"}:
                panel.set_yscale("log")
    legend(panels[0, 0])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_curves(runs: Sequence[Run], path: Path, names: Sequence[str], field: str, title: str) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(names), figsize=(14, 3.6), sharex=True, sharey=True, layout="constrained")
    for panel, name in zip(panels, names, strict=True):
        plot_curves(panel, of(runs, name), field)
        panel.set_title(name, fontsize=10, loc="left", color=INK)
    seen = [value for name in names for run in of(runs, name) for value in run["curves"][field] if value is not None]
    panels[0].set_ylim(min(seen) - 0.1, min(max(seen), MAX_LOSS) + 0.1)
    panels[0].set_ylabel(title, color=INK)
    legend(panels[0])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_rates(runs: Sequence[Run], path: Path) -> None:
    """Final loss by learning rate; diverged runs are crosses at the top."""
    import matplotlib.pyplot as plt

    names = ("untied", "untied, tuned AdamW", UNTIED_DEFAULT, "tied", TIED_DEFAULT)
    figure, panel = plt.subplots(figsize=(8, 4.4), layout="constrained")
    top = max(run["validation_loss"] for run in runs if not run["diverged"]) + 0.3
    for number, name in enumerate(names):
        own = of(runs, name)
        color = plt.get_cmap("tab10")(number)
        shift = 1.0 + 0.03 * (number - 2)
        points = [(LEARNING_RATE * run["factor"] * shift, run["validation_loss"]) for run in own if not run["diverged"]]
        lost = [LEARNING_RATE * run["factor"] * shift for run in own if run["diverged"]]
        if points:
            panel.plot(*zip(*points, strict=True), "o", color=color, label=name, markersize=5)
        panel.plot(lost, [top] * len(lost), "x", color=color, markersize=7)
    panel.set_xscale("log")
    panel.set_xlabel("learning rate", color=INK)
    panel.set_ylabel("validation loss (x: diverged)", color=INK)
    panel.legend(frameon=False, fontsize=8)
    frame(panel)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_curves(panel: Any, runs: Sequence[Run], field: str) -> None:
    for run in runs:
        values = [float("nan") if value is None else value for value in run["curves"][field]]
        panel.plot(run["curves"]["step"], values, color=COLORS[run["factor"]], linewidth=1, alpha=0.8)
    frame(panel)


def legend(panel: Any) -> None:
    for factor, color in COLORS.items():
        panel.plot([], [], color=color, label=f"x{factor}")
    panel.legend(frameon=False, fontsize=8, title="learning rate", title_fontsize=8)


def frame(panel: Any) -> None:
    panel.grid(color=FAINT, linewidth=0.6)
    panel.tick_params(colors=INK, labelsize=8)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
