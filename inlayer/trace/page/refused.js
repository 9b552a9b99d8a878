// A request that was refused: what is drawn is of the one before, or there is nothing to draw; either says so.

function staleNote() {
  const { texts, model } = current.asked;
  const more = texts.length > 1 ? ` and ${counted(texts.length - 1, "more text")}` : "";
  return make("div", { class: "stale-note", id: "stale-note" },
    make("p", {}, make("strong", {}, "Not what was asked for. "),
      `That was refused, for the reason above. Here is still the walk before: ${quoted(texts[0])}${more}, `,
      `through ${model}.`),
    button("Go back to it", () => go({ ...current.asked, token: null }), { id: "go-back" }));
}

// A link that was refused as the page opened: what to do about it.
function nothingView() {
  const own = source.exported ? { texts: source.texts, dims: source.dims } : {};
  const start = { ...START, ...own, model: models[0]?.name ?? null };
  const again = () => (models.length > 0 ? go(start) : location.reload());
  return [
    make("h1", { id: "stage-title" }, "Nothing to show yet"),
    make("p", { class: "lead" }, "What this link asks for was refused, for the reason above. ",
      "Change the text, take another model or reset the changes; or start over."),
    make("div", { class: "question-actions" },
      isChanged(changeOf(state)) && button("Leave out the changes", () => go({ ...UNCHANGED }), { id: "leave-out" }),
      button(models.length > 0 ? "Start over" : "Load the page again", again, { id: "start-over", class: "primary" })),
  ];
}
