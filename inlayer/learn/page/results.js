// The result of grading: every check with its state, the first failure, the code's output, and, if all passed,
// why it works and the learner's tensor.

const MARKS = { passed: "\u2713", failed: "\u2717", "not run": "\u00b7" };

function resultsView(verdict) {
  return make("section", { class: "results", "aria-labelledby": "results-title" },
    make("h2", { id: "results-title", class: verdict.passed ? "good" : "bad", tabindex: -1 },
      verdict.passed ? `Well done! ${verdict.summary}` : verdict.summary),
    make("p", { class: "stale-note-text" }, "You changed the code since this check. Check again."),
    verdict.passed && make("div", { class: "actions" }, button("See it in the walk",
      () => openWalk(verdict.step, null), { id: "see-walk" }), span("note", `step ${verdict.step}`)),
    make("ol", { class: "checks" }, verdict.checks.map(checkLine)),
    verdict.printed && printedView(verdict.printed),
    verdict.passed && whyView(verdict));
}

function checkLine({ name, description, state, rule, message, feedback }) {
  const word = state.replace(" ", "-");
  return make("li", { class: "result result-" + word, data: { state: word } },
    span("result-mark", make("span", { "aria-hidden": "true" }, MARKS[state]), span("hidden-text", state + ": ")),
    make("div", { class: "result-text" },
      make("p", {}, span("result-name", name), " ", span("muted", description), state === "not run" && span("tag", "not run")),
      message && failureView(rule, message, feedback)));
}

// The first line is the message; the other lines are aligned in columns.
function failureView(rule, message, feedback) {
  const [first, ...rest] = message.split("\n");
  const drawing = rest.join("\n").replace(/\s+$/, "");
  return make("div", { class: "failure" },
    make("p", {}, first, " ", span("tag rule", rule)),
    [drawing, ...feedback].filter(Boolean).length > 0 && make("pre", { class: "drawing", tabindex: 0, role: "group",
      "aria-label": "Input, your output, and what was expected" }, [drawing, ...feedback].filter(Boolean).join("\n")));
}

function printedView(printed) {
  return make("figure", { class: "block-figure block-output" },
    make("figcaption", { class: "line-name" }, "Your code printed"),
    make("pre", { tabindex: 0, role: "group", "aria-label": "What your code printed" }, printed));
}

function whyView({ why, tensor, step }) {
  return make("div", { class: "why" },
    why && [make("h3", {}, "Why it works"), prose(why)],
    tensor && tensorView(tensor, step));
}

// The learner's tensor, drawn like the walk's tensors; integers (ids, positions, masks) are not colored.
function tensorView({ shape, dtype, is_integer: isInteger, rows, labels, more, note: remark }, step) {
  const scale = isInteger ? { maxAbs: 0, decimals: 0, beyond: false } : scaleOf(...rows);
  const table = matrix({
    label: "Your tensor",
    rows: rows.map((values, t) => ({ head: labels[t], values, cell: (d) => ({ field: "tensor", t, d }) })),
    count: rows[0]?.length ?? 0, scale, more,
  });
  if (isInteger) for (const cell of table.querySelectorAll("[data-value]")) cell.textContent = signed(cell.dataset.value);
  return make("figure", { class: "tensor" },
    make("figcaption", { class: "figure-head caption" },
      make("h3", {}, "Your tensor"),
      span("", "computed by your code from the text of the walk: ", digits(shapeOf(shape)), " ", dtype)),
    table, legend(scale),
    remark && note(remark),
    make("p", { class: "note" }, "See it in the walk: ", walkLink(step, null, `step ${step}`), "."));
}

function solutionView({ solution, why, showWhy }) {
  return make("section", { class: "solution", "aria-labelledby": "solution-title" },
    make("h2", { id: "solution-title", tabindex: -1 }, "A solution"),
    prose(solution),
    showWhy && [make("h3", {}, "Why it works"), prose(why)]);
}
