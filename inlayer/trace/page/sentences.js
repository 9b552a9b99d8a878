// What a change did, in words. A reason is said only where the numbers bear it out.

function changeBanner(step) {
  return current.base && make("p", { class: "changed-note", id: "changed-note" }, changeSentence(step));
}

function changeSentence(step) {
  const { change } = current.trace;
  if (step < 3) return `Nothing changes here. ${laterOn(change)}`;
  const count = tally(step);
  const total = count.same + count.changed;
  const told = [];
  if (count.changed > 0) told.push(`${grouped(count.changed)} of ${counted(total, "number")} changed`);
  else if (total > 0) told.push(`None of ${counted(total, "number")} changed`);
  if (count.new > 0) told.push(counted(count.new, "new one"));
  const reasons = [];
  if (change.swap) reasons.push(...swapReasons(step, change.swap, count));
  if (change.pad) reasons.push(...padReasons(step, change.pad, count));
  if (change.positions !== null || change.theta !== null) reasons.push(...positionReasons(step, count));
  return `${upper([told.join(", "), reasons.filter(Boolean).join("; ")].filter(Boolean).join(": "))}.`;
}

function laterOn(change) {
  if (change.positions !== null || change.theta !== null) return "The text is the same; positions come in at step 6.";
  if (change.pad) return "The text is the same; padding is added to the ids, at step 3.";
  return "The text is the same; the tokens trade places at step 3.";
}

function swapReasons(step, [i, j], count) {
  const cells = current.trace.texts[0].cells;
  const before = current.base.texts[0].cells;
  const places = [...count.tokens].map((place) => place.split(",").map(Number));
  const onlyThese = places.every(([b, t]) => b === 0 && (t === i || t === j));
  if (!cells[i] || !cells[j]) return []; // past the tokens shown
  const arrived = (field, to, from) => sameVector(cells[to][field], before[from][field]);
  const traded = (field) => arrived(field, i, j) && arrived(field, j, i);
  const two = `tokens ${i} and ${j}`;
  if (step < 6 && cells[i].id === cells[j].id) return [`${two} are the same token`];
  if (step === 3) return [onlyThese && `only ${two} traded their ids`];
  if (step === 4) return [onlyThese && `only ${two} look elsewhere in the file; the table itself is untouched`];
  if (step === 5) return [onlyThese && traded("row") && `only ${two} traded their rows`];
  if (step === 6) {
    const kept = (count.byField.added ?? count.byField.angles)?.changed === 0;
    if (!kept) return [];
    return [count.byField.added ? "the position vectors stayed: they belong to the place, not to the token"
      : "the angles stayed: they belong to the place, not to the token"];
  }
  if (step === 7) {
    if (!onlyThese) return [];
    if (traded("hidden")) return [`${two} traded their hidden states whole: nothing added here tells the order`];
    return [`only ${two}: each is now the other's row with its own position`];
  }
  const guessing = count.changed > 0 && current.trace.backward?.loss === "next token";
  return [guessing && "what comes next is asked of other rows now, so the way back differs"];
}

function padReasons(step, pad, count) {
  const padding = counted(pad, "padding token");
  if (step === 8) {
    const row = current.trace.backward?.rows.find((one) => one.is_padding);
    const quiet = row && row.total.every((value) => toNumber(value) === 0);
    return [
      count.changed === 0 && "padding teaches nothing: no other row noticed",
      quiet && "the padding row itself receives nothing",
    ];
  }
  const kept = count.changed === 0 && count.same > 0 && "the real tokens did not notice";
  return [count.new ? `the new ones belong to ${padding}` : "", kept];
}

function positionReasons(step, count) {
  const { trace, base } = current;
  const now = trace.positions.scheme, was = base.positions.scheme;
  if (step < 6) return ["ids and rows do not depend on positions"];
  if (now === was && now === "rotary") {
    const [from, to] = [base, trace].map((one) => brief(one.positions.turnings[0].theta));
    if (step === 6) return [`theta went from ${from} to ${to}: pairs turn at another speed`];
    return [step === 7 && count.changed === 0 && "rotary positions add nothing here, whatever theta is"];
  }
  if (step === 6) return [`positions went from ${was} to ${now}`];
  const adds = (scheme) => scheme === "learned" || scheme === "sinusoidal";
  if (step === 7 && count.changed === 0) return [`neither ${was} nor ${now} positions add anything to the rows`];
  if (step === 7) {
    if (adds(now) && adds(was)) return ["another vector is added at every place"];
    return [adds(now) ? "a vector is added at every place now" : "no vector is added any more"];
  }
  return [count.changed ? "the loss sees other hidden states" : ""];
}

function sameVector(a, b) {
  return a.length === b.length && a.every((value, index) => value === b[index]);
}
