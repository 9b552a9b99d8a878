// Part of step 4: n-gram memories. The row that each n-gram of the text reads, its byte offset, and shared rows.

function ngramMemories(trace) {
  return (trace.ngram_memories ?? []).map((memory) => {
    const { layer } = memory;
    const title = layer === null ? "N-gram memory, part of the hidden states" : `N-gram memory of layer ${layer}`;
    const done = layer === null ? "read" : "located"; // a walk ends before the decoder layers
    const used = [...new Set(memory.reads.flat(2).flatMap((read) => read.rows))];
    return make("section", { class: "check ngram-memory", "aria-label": title },
      make("h2", {}, title),
      facts([
        ["Tensor", [code(memory.tensor), memory.n_tensors > 1 ? ` and ${counted(memory.n_tensors - 1, "more tensor")}` : ""]],
        ["File", fileOf(memory)],
        ["Shape", digits(`${grouped(memory.rows)} ${TIMES} ${grouped(memory.width)}`)],
        ["Stored as", code(memory.dtype)],
        ["Hash heads", digits(grouped(memory.heads))],
        [layer === null ? "Read here" : "Located", digits(`${counted(memory.rows_read, "row")}, ${counted(memory.bytes_read, "byte")}`)],
      ], "facts facts-wide"),
      strip(memory.rows, used, {
        label: `The memory: ${counted(used.length, "row")} ${done}`, middle: counted(used.length, "row"), color: () => "var(--accent)",
      }),
      perText(trace, (text, b) => ngramTable(trace, memory, text, b)),
      sharedRows(trace, memory));
  });
}

function ngramTable(trace, memory, text, b) {
  const head = make("tr", {}, ["token", "n", "n-gram", "rows, one per hash head", "first byte"].map((name) =>
    make("th", { scope: "col" }, name)));
  const lines = text.tokens.flatMap((token, t) => memory.reads[b][t].map((read, index) =>
    make("tr", { class: token.mask === 0 ? "padding-line" : null },
      make("th", { scope: "row", class: "row-head" }, index === 0 ? rowHead(token, b, t, 4) : null),
      make("td", { class: "number" }, String(read.order)),
      make("td", {}, code(read.text)),
      make("td", { class: "number" }, read.rows.map(grouped).join(", ")),
      make("td", { class: "number" }, grouped(read.offsets[0])))));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `N-grams of ${textName(trace, b)}` },
    make("table", { class: "reads" }, make("thead", {}, head), make("tbody", {}, lines)));
}

function sharedRows(trace, memory) {
  if (memory.shared.length === 0) return note("No two n-grams of this walk read the same row.");
  const many = trace.texts.length > 1;
  const first = trace.first_token ?? 0;
  const label = ([b, t]) => (many ? `${t + first} of ${textName(trace, b)}` : String(t + first));
  return [
    make("h3", {}, "N-grams that read the same rows"),
    make("ul", { class: "shared-rows" }, memory.shared.slice(0, 20).map((group) => make("li", {},
      group.texts.map((text, index) => [index ? " and " : "", code(text)]),
      ` at tokens ${group.occurrences.map(label).join(", ")}: `,
      group.n_shared_heads === group.n_heads ? "all hash heads" : `${group.n_shared_heads} of ${counted(group.n_heads, "hash head")}, by collision`))),
    memory.normalized && note("Tokens with the same normalized text are hashed as one."),
  ];
}
