// Exercises: a number, a shape or a choice is judged by the server; what no program can judge is compared by the learner.

const KINDS = {
  number: "judged here", choice: "judged here",
  free: "not judged: you compare it with a model answer",
};

function exercisesView(lesson) {
  const elements = [
    stageHead("Exercises", `On paper: ${lesson.title}`, lesson.step, lesson),
    make("p", { class: "lead" }, make("span", { id: "exercises-done" }, doneOf(lesson)),
      "Their numbers are drawn; another draw asks the same with other ones."),
    lesson.exercises.map(exerciseCard),
    make("div", { id: "after" }, nextLink(following())),
  ];
  return [elements, () => 0];
}

function doneOf({ exercises }) {
  return `${exercises.filter((one) => one.done).length} of ${exercises.length} done. `;
}

function exerciseCard(exercise, index) {
  const card = make("section", { class: "exercise", "aria-labelledby": `exercise-${index}`, data: { id: exercise.id } });
  const fill = () => card.replaceChildren(
    make("div", { class: "exercise-head" },
      make("h2", { id: `exercise-${index}` }, `${index + 1}. ${upper(exercise.title)}`),
      exerciseTag(exercise)),
    prose(exercise.text),
    exercise.kind === "free" ? freeForm(exercise) : judgedForm(exercise, index, fill),
    make("div", { class: "judged", role: "status" }));
  fill();
  return card;
}

function exerciseTag({ done, kind }) {
  return done ? span("tag good", `${DONE} done`) : span("tag", KINDS[kind]);
}

function judgedForm(exercise, index, fill) {
  const name = `answer-${index}`;
  const field = exercise.kind === "choice"
    ? make("fieldset", { class: "picks" }, make("legend", { class: "hidden-text" }, exercise.title),
      exercise.options.map((option, number) => choiceLine(name, letter(number), option)))
    : make("label", { class: "field" }, exercise.shape ? "A shape, such as (2, 3, 4)" : "A number",
      make("input", { name, autocomplete: "off", size: 22, class: "mono", inputmode: exercise.shape ? null : "text" }),
      exercise.unit && span("", exercise.unit));
  const form = make("form", { class: "answer", autocomplete: "off", data: { seed: exercise.seed }, on: { submit: (event) => {
    event.preventDefault();
    answerExercise(exercise, form, new FormData(form).get(name) ?? "");
  } } },
  field, make("div", { class: "actions" }, make("button", { class: "primary" }, "Answer"),
    button("Show the answer", (event) => giveAway(exercise, form, event.currentTarget), { class: "quiet give-away" }),
    button("Another draw", async () => {
      const drawn = await attempt(() => server.exercise(exercise.id, Math.floor(Math.random() * 0x7fffffff)));
      if (!drawn) return;
      Object.assign(exercise, drawn, { done: exercise.done });
      fill();
    }, { class: "quiet" })));
  return form;
}

function letter(number) {
  return String.fromCharCode(97 + number);
}

function choiceLine(name, value, nodes) {
  return make("label", { class: "pick" }, make("input", { type: "radio", name, value }),
    span("pick-text", inline(nodes)));
}

async function answerExercise(exercise, form, said) {
  const place = form.nextElementSibling;
  if (said === "") return place.replaceChildren(note("Give an answer first."));
  try {
    const judged = await server.answer({ exercise: exercise.id, seed: exercise.seed, answer: said });
    place.replaceChildren(judgedView(judged));
    if (judged.right) markDone(exercise, form);
    else if (judged.readable) refreshCourse();
  } catch (error) {
    place.replaceChildren(make("p", { class: "error" }, error.message));
  }
}

function judgedView({ right, readable, message }) {
  const word = right ? "Right." : readable ? "Not yet." : "That cannot be read.";
  return told(right, word, prose(message));
}

function told(right, word, ...more) {
  return make("div", { class: "told " + (right ? "good" : "bad") },
    make("p", { class: "told-word" }, `${right ? MARKS.passed : MARKS.failed} ${word}`), more);
}

// What "?" does in the terminal: the answer is shown, the exercise stays to be done with other numbers.
async function giveAway(exercise, form, pressed) {
  const shown = await attempt(() => server.answer({ exercise: exercise.id, seed: exercise.seed, give_away: true }));
  if (!shown) return;
  for (const input of form.querySelectorAll("input, .primary")) input.disabled = true;
  pressed.disabled = true;
  showMarks(form, shown, null);
  form.nextElementSibling.replaceChildren(make("div", { class: "told" },
    make("p", { class: "told-word" }, "The answer: ", inline(shown.given)),
    prose(shown.message),
    note(exercise.done ? "This exercise is done already." : "Not done: it stays open. Another draw asks it with other numbers.")));
}

// Options with a sign, a word and the reason each; which one was the learner's.
function showMarks(form, { marks, whys }, chosen) {
  const lines = form.querySelectorAll(".pick");
  whys.forEach((why, number) => {
    if (why === null) return;
    lines[number].classList.add(marks[number] ? "good" : "bad");
    const word = (marks[number] ? `${MARKS.passed} Right` : `${MARKS.failed} Not right`) +
      (number === chosen ? ", your choice" : "");
    lines[number].append(make("span", { class: "pick-why" }, make("strong", { class: "pick-word" }, word), ". ", inline(why)));
  });
  if (chosen !== null) lines[chosen].classList.add("chosen");
}

function markDone(exercise, inside) {
  exercise.done = true;
  inside.closest(".exercise").querySelector(".tag").replaceWith(exerciseTag(exercise));
  byId("exercises-done").textContent = doneOf(lessons.get(view.lesson));
  refreshCourse();
}

function freeForm(exercise) {
  const area = make("textarea", { rows: 4, "aria-label": `Your answer: ${exercise.title}`,
    placeholder: "Write it down first; it stays in this page." });
  const compared = make("div", { class: "compared" });
  const compare = async () => {
    const model = await attempt(() => server.answer({ exercise: exercise.id, seed: exercise.seed, answer: area.value }));
    if (!model) return;
    const boxes = model.points.map(() => make("input", { type: "checkbox" }));
    compared.replaceChildren(
      make("h3", {}, "A model answer"), prose(model.model_answer),
      make("h3", {}, "Does yours say"),
      make("ul", { class: "points" }, model.points.map((point, number) => make("li", {},
        make("label", { class: "pick" }, boxes[number], span("pick-text", inline(point)))))),
      button("That is what mine says", () => hold(exercise, area, model.points, boxes), { class: "primary hold" }));
  };
  return make("div", { class: "answer" }, area,
    make("div", { class: "actions" }, button("Compare with a model answer", compare)), compared);
}

// Done is what says every point, as in the terminal; what is missing is named, and it stays open.
async function hold(exercise, area, points, boxes) {
  const place = area.closest(".exercise").querySelector(".judged");
  const missing = points.filter((_, number) => !boxes[number].checked);
  const count = `${points.length - missing.length} of ${counted(points.length, "point")}`;
  if (missing.length) {
    place.replaceChildren(told(false, `${count}. ${exercise.done ? "W" : "It stays open: w"}rite it again with what is missing.`,
      make("ul", { class: "missing-points" }, missing.map((point) => make("li", {}, inline(point))))));
    return;
  }
  const held = await attempt(() => server.answer({ exercise: exercise.id, seed: exercise.seed, held: true }));
  if (!held) return;
  place.replaceChildren(told(true, `Done: ${count}, by your own judgment.`));
  markDone(exercise, area);
}
