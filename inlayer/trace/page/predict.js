// Predict first: a step is covered by a question until it is answered or passed over; then it says what is so.

const revealed = new Map(); // step -> the verdict shown above it, or null; for the walk on show
const asked = {}; // step -> which of its questions
let score = { right: 0, all: 0 };

function coverAgain() {
  revealed.clear();
}

function isCovered(step) {
  return state.predict && !revealed.has(step) && questionsFor(current.trace, step).length > 0;
}

function questionCard(step) {
  const questions = questionsFor(current.trace, step);
  const question = questions[(asked[step] ?? 0) % questions.length];
  const check = (event) => {
    event.preventDefault();
    const written = String(new FormData(event.target).get("answer") ?? "");
    if (written.trim() === "") return;
    const right = judge(question, written);
    score = { right: score.right + right, all: score.all + 1 };
    reveal(step, { question, right, written });
  };
  const soFar = score.all ? `; ${score.right} of ${score.all} right so far` : "";
  return make("form", { class: "question", on: { submit: check }, "aria-labelledby": "question" },
    make("p", { class: "question-count" }, `Predict first${soFar}`),
    make("h2", { id: "question" }, question.ask),
    question.kind === "choice" ? choices(question) : answerField(question),
    make("div", { class: "question-actions" },
      make("button", { type: "submit", class: "primary" }, "Check"),
      questions.length > 1 && button("Another question", () => askAnother(step)),
      button("Just show it", () => reveal(step, null))));
}

function answerField({ kind }) {
  return make("label", { class: "field" }, kind === "shape" ? "Your shape, such as 2, 5, 64" : "Your number",
    make("input", {
      name: "answer", class: "mono", inputmode: kind === "whole" ? "numeric" : "text", autocomplete: "off",
      spellcheck: "false",
    }));
}

function choices({ options }) {
  return make("fieldset", { class: "choices" }, make("legend", { class: "hidden-text" }, "Your answer"),
    options.map((option) => make("label", {},
      make("input", { type: "radio", name: "answer", value: option, required: true }), option)));
}

function askAnother(step) {
  revealed.delete(step);
  asked[step] = (asked[step] ?? 0) + 1;
  renderStage();
  focusQuestion();
}

function reveal(step, verdict) {
  revealed.set(step, verdict);
  renderStage();
  byId("stage").focus({ preventScroll: true });
  if (verdict) announce(`${verdictWords(verdict)} ${verdict.question.explain}`);
}

function verdictWords({ question, right, written }) {
  const answer = answerWords(question);
  return right ? `Right: ${answer}.` : `Not quite: it is ${answer}, you said ${cut(written.trim(), 40)}.`;
}

function verdictBanner(step) {
  const verdict = state.predict ? revealed.get(step) : null;
  if (!verdict) return null;
  return make("div", { class: "verdict-banner " + (verdict.right ? "right" : "wrong") },
    make("p", { id: "verdict" },
      span("muted", verdict.question.ask), " ", make("strong", {}, verdictWords(verdict)), " ", verdict.question.explain),
    button("Ask another", () => askAnother(step), { class: "quiet" }));
}

function focusQuestion() {
  document.querySelector(".question input")?.focus();
}
