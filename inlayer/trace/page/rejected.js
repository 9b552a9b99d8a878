// Failed requests: a note above the previous walk, or a page without a walk.

function staleNote() {
  const { texts, model } = current.query;
  const more = texts.length > 1 ? ` and ${counted(texts.length - 1, "more text")}` : "";
  return make("div", { class: "stale-note", id: "stale-note" },
    make("p", {}, make("strong", {}, "The request failed. "),
      `See the error above. This is the previous walk: ${quoted(texts[0])}${more}, with model ${model}.`),
    button("Restore it", () => go({ ...current.query, token: null }), { id: "restore" }));
}

// Shown for a model without a tokenizer.
function rowsOnlyView() {
  return [
    make("h1", { id: "stage-title" }, "This model has no tokenizer"),
    make("p", { class: "lead" }, `The files of ${state.model} have no tokenizer, so text cannot be converted to ids. `,
      modelFacts().shape[0] < 3 ? `Its table has ${counted(modelFacts().shape[0], "row")}, too few for a map. `
        : "The map shows the rows, labeled by their ids. Select one to see its nearest rows and its values. ",
      "The Inspect view checks the whole table."),
  ];
}

// Shown when the very first request fails.
function nothingView() {
  const exported = source.exported ? { texts: source.texts, dims: source.dims } : {};
  const start = { ...START, ...exported, model: models[0]?.name ?? null };
  const again = () => (models.length > 0 ? go(start) : location.reload());
  return [
    make("h1", { id: "stage-title" }, "Nothing to show yet"),
    make("p", { class: "lead" }, "The request failed; see the error above. ",
      "Change the text, choose another model, reset the experiment, or start over."),
    make("div", { class: "question-actions" },
      isChanged(changeOf(state)) && button("Reset the experiment", () => go({ ...UNCHANGED }), {
        id: "reset-experiment",
      }),
      button(models.length > 0 ? "Start over" : "Reload the page", again, { id: "start-over", class: "primary" })),
  ];
}
