// Exercises: a number, a shape or a choice is judged by the server; what no program can judge is compared by the learner.

const KINDS = {
  number: "judged here", choice: "judged here",
  free: "not judged: you compare it with a model answer",
};

function exercisesView(lesson) {
  const done = lesson.exercises.filter((one) => one.done).length;
  const elements = [
    stageHead("Exercises", `On paper: ${lesson.title}`, lesson.step, lesson),
    make("p", { class: "lead" }, `${done} of ${lesson.exercises.length} done. `,
      "Their numbers are drawn; another draw asks the same with other ones."),
    lesson.exercises.map(exerciseCard),
    make("div", { id: "after" }, nextLink(following())),
  ];
  return [elements, () => 0];
}

function exerciseCard(exercise, index) {
  const card = make("section", { class: "exercise", "aria-labelledby": `exercise-${index}`, data: { id: exercise.id } });
  const fill = () => card.replaceChildren(
    make("div", { class: "exercise-head" },
      make("h2", { id: `exercise-${index}` }, `${index + 1}. ${upper(exercise.title)}`),
      span("tag", exercise.done ? "done" : KINDS[exercise.kind])),
    prose(exercise.text),
    exercise.kind === "free" ? freeForm(exercise) : judgedForm(exercise, index, fill),
    make("div", { class: "judged", role: "status" }));
  fill();
  return card;
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
  } catch (error) {
    place.replaceChildren(make("p", { class: "error" }, error.message));
  }
}

function judgedView({ right, readable, message }) {
  const word = right ? "Right." : readable ? "Not yet." : "That cannot be read.";
  return make("div", { class: "told " + (right ? "good" : "bad") },
    make("p", { class: "told-word" }, word), prose(message));
}

function markDone(exercise, inside) {
  exercise.done = true;
  inside.closest(".exercise").querySelector(".tag").textContent = "done";
  refreshCourse();
}

function freeForm(exercise) {
  const area = make("textarea", { rows: 4, "aria-label": `Your answer: ${exercise.title}`,
    placeholder: "Write it down first; it stays in this page." });
  const compared = make("div", { class: "compared" });
  const compare = async () => {
    const model = await attempt(() => server.answer({ exercise: exercise.id, seed: exercise.seed, answer: area.value }));
    if (!model) return;
    compared.replaceChildren(
      make("h3", {}, "A model answer"), prose(model.model_answer),
      make("h3", {}, "Does yours say"),
      make("ul", { class: "points" }, model.points.map((point) => make("li", {},
        make("label", { class: "pick" }, make("input", { type: "checkbox" }), span("pick-text", inline(point)))))),
      button("Mine says all of it", async () => {
        const held = await attempt(() => server.answer({ exercise: exercise.id, seed: exercise.seed, held: true }));
        if (held) markDone(exercise, area);
      }, { class: "primary" }));
  };
  return make("div", { class: "answer" }, area,
    make("div", { class: "actions" }, button("Compare with a model answer", compare)), compared);
}
