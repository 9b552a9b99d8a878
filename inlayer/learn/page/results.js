// What a check found: every check with its state, the first failure in words, what the code printed, and, where all
// passed, why it works and the learner's own tensor.

const MARKS = { passed: "\u2713", failed: "\u2717", "not run": "\u00b7" };

function resultsView(verdict) {
  return make("section", { class: "results", "aria-labelledby": "results-title" },
    make("h2", { id: "results-title", class: verdict.passed ? "good" : "bad", tabindex: -1 },
      verdict.passed ? `Passed: ${verdict.summary}` : verdict.summary),
    make("p", { class: "stale-word" }, "This is of the code before your change; check again."),
    verdict.passed && make("div", { class: "actions" }, button("See it in the walk",
      () => openWalk(verdict.step, null), { id: "see-walk" }), span("note", `step ${verdict.step}`)),
    make("ol", { class: "checks" }, verdict.results.map(checkLine)),
    verdict.printed && printedView(verdict.printed),
    verdict.passed && whyView(verdict));
}

function checkLine({ name, what, state, rule, message }) {
  const word = state.replace(" ", "-");
  return make("li", { class: "result result-" + word, data: { state: word } },
    span("result-mark", make("span", { "aria-hidden": "true" }, MARKS[state]), span("hidden-text", state + ": ")),
    make("div", { class: "result-text" },
      make("p", {}, span("result-name", name), " ", span("muted", what), state === "not run" && span("tag", "not run")),
      message && failureView(rule, message)));
}

// The first line says it; what follows is a drawing, and stays in its columns.
function failureView(rule, message) {
  const [first, ...rest] = message.split("\n");
  const drawing = rest.join("\n").replace(/\s+$/, "");
  return make("div", { class: "failure" },
    make("p", {}, first, " ", span("tag rule", rule)),
    drawing && make("pre", { class: "drawing", tabindex: 0, role: "group", "aria-label": "Expected against yours" }, drawing));
}

function printedView(printed) {
  return make("figure", { class: "block-figure block-output" },
    make("figcaption", { class: "line-name" }, "Your code printed"),
    make("pre", { tabindex: 0, role: "group", "aria-label": "What your code printed" }, printed));
}

function whyView({ why, own, step }) {
  return make("div", { class: "why" },
    why && [make("h3", {}, "Why it works"), prose(why)],
    own && ownView(own, step));
}

// The learner's tensor as the walk draws its own; ids, places and masks are whole numbers, and no color belongs to them.
function ownView({ shape, dtype, whole, rows, heads, more, note: remark }, step) {
  const scale = whole ? { most: 0, decimals: 0, beyond: false } : scaleOf(...rows);
  const table = matrix({
    label: "Your own tensor",
    rows: rows.map((values, t) => ({ head: heads[t], values, place: (d) => ({ field: "own", t, d }) })),
    count: rows[0]?.length ?? 0, scale, more,
  });
  if (whole) for (const cell of table.querySelectorAll("[data-value]")) cell.textContent = signed(cell.dataset.value);
  return make("figure", { class: "own" },
    make("figcaption", { class: "figure-head caption" },
      make("h3", {}, "Your own tensor"),
      span("", "from your code, on the text of the walk: ", digits(shapeOf(shape)), " ", dtype)),
    table, legend(scale),
    remark && note(remark),
    make("p", { class: "note" }, "Here it stands in the walk: ", walkLink(step, null, `step ${step}`), "."));
}

function solutionView({ solution, why, given }) {
  return make("section", { class: "solution", "aria-labelledby": "solution-title" },
    make("h2", { id: "solution-title", tabindex: -1 }, "A solution"),
    prose(solution),
    given && [make("h3", {}, "Why it works"), prose(why)]);
}
