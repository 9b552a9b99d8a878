// Where answers come from: the server this page came from.

class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const token = new URLSearchParams(location.search).get("token") ?? "";

async function ask(path, body, { signal, keepalive } = {}) {
  const headers = { Authorization: "Bearer " + token };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, signal, keepalive,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is it still running? What you typed is kept in this page.", 0);
  }
  const answer = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (answer.error !== undefined) throw new Refused(answer.error, response.status);
  return answer;
}

const asking = (path, query) => `${path}?${new URLSearchParams(query)}`;

const server = {
  course: (signal) => ask("/api/learn", undefined, { signal }),
  lesson: (id, signal) => ask(asking("/api/learn/lesson", { id }), undefined, { signal }),
  misconceptions: (signal) => ask("/api/learn/misconceptions", undefined, { signal }),
  file: (task) => ask(asking("/api/learn/file", { task })),
  exercise: (id, seed) => ask(asking("/api/learn/exercise", { id, seed })),
  check: (task, code, sum, signal) => ask("/api/learn/check", { task, code, loaded: sum }, { signal }),
  save: (task, code, sum, keepalive = false) => ask("/api/learn/save", { task, code, loaded: sum }, { keepalive }),
  hint: (task) => ask("/api/learn/hint", { task }),
  solution: (task) => ask("/api/learn/solution", { task }),
  skip: (step) => ask("/api/learn/skip", { step }),
  reset: (task, sum) => ask("/api/learn/reset", { task, loaded: sum }),
  read: (lesson) => ask("/api/learn/read", { lesson }),
  answer: (said) => ask("/api/learn/answer", said),
};
