// Step 6: order. Added positions as a written sum; rotary ones as dials, since nothing is added and pairs only turn.

function stepPositions(trace) {
  const { positions } = trace;
  const place = trace.stages.findIndex((stage) => stage.name === "position");
  const whose = positions.own ? "the model\u2019s own" : "put in place for this walk";
  const said = facts([
    ["Scheme", `${positions.scheme}, ${whose}`],
    ["Made for", positions.block_size && counted(positions.block_size, "token")],
  ], "facts facts-wide");
  if (place >= 0) return [said, writtenSum(trace, [place], 6, ["before", "added", "after"])];
  if (positions.turnings.length === 0) {
    return [said, plainFact("No positions: the rows go on as they are, and the same tokens in another order give the "
      + "same vectors in another order.")];
  }
  return [said,
    plainFact(make("strong", {}, "Nothing is added. "),
      "Each channel pair gets an angle that grows with the place; the attention turns queries and keys by it later."),
    positions.turnings.map((turning, s) => turningFigure(trace, turning, s))];
}

// ---- added: rows under each other as one adds on paper, what it was, what is added, what it becomes

function writtenSum(trace, stages, step, fields) {
  const cells = trace.texts.flatMap((text) => text.cells);
  const scale = scaleOf(cells.map((cell) => stages.map((s) => fields.map((field) => vectorOf(cell, s, field) ?? []))));
  const count = Math.max(0, ...cells.flatMap((cell) => stages.map((s) => cell.stages[s].after.length)));
  const label = step === 6 ? "Row, position and sum" : "Every stage";
  const head = make("tr", {},
    make("th", { scope: "col", class: "corner" }, "token"), make("th", { scope: "col" }, ""), columnHeads(count));
  return [legend(scale), trace.texts.map((text, b) =>
    make("section", { class: "one-text", "aria-label": textName(trace, b) },
      trace.texts.length > 1 && make("h3", { class: "text-name" }, textName(trace, b)),
      gridTable(`${label} of ${textName(trace, b)}`, make("thead", {}, head.cloneNode(true)),
        text.cells.map((cell, t) => sumLines(trace, cell, { b, t, step, stages, fields, scale })), "sums"),
      missingTokens(text)))];
}

function vectorOf(cell, s, field) {
  return field === "before" ? beforeStage(cell, s) : cell.stages[s][field];
}

function sumLines(trace, cell, { b, t, step, stages, fields, scale }) {
  const lines = stages.flatMap((s) => fields.map((field) => ({ s, field })))
    .filter(({ s, field }) => vectorOf(cell, s, field));
  const head = make("th", { scope: "rowgroup", rowspan: lines.length, class: "row-head" }, rowHead(cell, b, t, step));
  return make("tbody", { class: cell.mask === 0 ? "padding-line" : null }, lines.map(({ s, field }, index) =>
    make("tr", { class: "sum-" + field },
      index === 0 && head,
      make("th", { scope: "row", class: "sum-sign" }, sumLabel(trace, cell, s, field)),
      vectorOf(cell, s, field).map((value, d) => numberCell(value, { step, field, s, b, t, d }, scale)))));
}

function sumLabel(trace, cell, s, field) {
  const { name } = trace.stages[s];
  if (field === "before") return s === 0 ? "row" : `after ${trace.stages[s - 1].name}`;
  if (field === "added") return name === "position" ? `+ position ${cell.position}` : `+ ${name}`;
  return cell.stages[s].added ? "= sum" : name;
}

// ---- rotary: one dial a token and pair

function turningFigure(trace, turning, s) {
  const scaled = turning.frequencies.some((value, d) => value !== turning.plain_frequencies[d]);
  const paired = turning.pairing === "half" ? "one of the first half with one of the second" : turning.pairing;
  const lines = trace.texts[0].cells.map((cell, t) => turnLine(cell, t, s, scaled));
  return make("section", { class: "turning", "aria-label": turning.layer_type ?? "Rotary turns" },
    turning.layer_type && make("h2", {}, turning.layer_type),
    facts([
      ["Theta", digits(brief(turning.theta))],
      ["Pairs", `${grouped(turning.pairs)} of a head\u2019s ${grouped(turning.head_dim)} channels, ${paired}`],
      ["Scaling", turning.scaling ? code(turning.scaling) : "none"],
      ["Factor on cos, sin", turning.factor === 1 ? null : digits(brief(turning.factor))],
    ], "facts facts-wide"),
    caption(`Angle of the first ${counted(turning.frequencies.length, "pair")}, in radians, for each token`,
      scaled && "; the thin hand shows it without scaling"),
    gridTable("Angles, tokens by channel pairs", turningHead(turning, s, scaled), [make("tbody", {}, lines)], "dials"),
    trace.texts.length > 1 && note("An angle belongs to a place: the other texts get the same ones."));
}

function turningHead(turning, s, scaled) {
  return make("thead", {},
    make("tr", {}, make("th", { scope: "col", class: "corner" }, "token"),
      turning.frequencies.map((_, d) => make("th", { scope: "col", class: "column" }, `pair ${d}`))),
    make("tr", { class: "speeds" }, make("th", { scope: "row", class: "corner" }, "radians a token"),
      turning.frequencies.map((value, d) => make("td", {
        class: "number", role: "gridcell", tabindex: -1,
        data: { nav: "", step: 6, field: "speed", s, d, value: exact(value) },
      }, shortened(value),
        scaled && span("plain-speed", shortened(turning.plain_frequencies[d]))))));
}

function turnLine(cell, t, s, scaled) {
  const turn = cell.turns[s];
  const part = (field, place) => make("span", {
    class: "number dial-part", data: { value: exact(turn[field][place.d]), ...place, field },
  }, `${field} ${fixed(turn[field][place.d], 3)}`);
  return make("tr", { class: cell.mask === 0 ? "padding-line" : null },
    make("th", { scope: "row", class: "row-head" }, rowHead(cell, 0, t, 6)),
    turn.angles.map((angle, d) => {
      const place = { step: 6, s, b: 0, t, d };
      return make("td", {
        class: "cell dial-cell " + markOf({ ...place, field: "angles" }, angle), role: "gridcell", tabindex: -1,
        data: { nav: "", value: exact(angle), ...place, field: "angles" },
      }, dial(angle, scaled ? turn.plain_angles[d] : null), span("number angle", fixed(angle, 3)),
      part("cos", place), part("sin", place));
    }));
}

function dial(angle, plainAngle) {
  const hand = (value, name, length) => {
    const at = toNumber(value);
    if (!Number.isFinite(at)) return null;
    const [x2, y2] = [14 + length * Math.cos(at), 14 - length * Math.sin(at)];
    return draw("line", { x1: 14, y1: 14, x2, y2, class: name });
  };
  return draw("svg", { class: "dial", viewBox: "0 0 28 28", "aria-hidden": "true" },
    draw("circle", { cx: 14, cy: 14, r: 12.5, class: "dial-face" }),
    draw("line", { x1: 14, y1: 14, x2: 26.5, y2: 14, class: "dial-zero" }),
    plainAngle !== null && hand(plainAngle, "dial-plain", 12),
    hand(angle, "dial-hand", 11),
    draw("circle", { cx: 14, cy: 14, r: 1.5, class: "dial-pin" }));
}
