// Requests to the server this page came from.

class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const token = new URLSearchParams(location.search).get("token") ?? "";

async function send(path, body, { signal, keepalive } = {}) {
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
    throw new ServerError("The server does not respond. Is it still running? Your text is kept on this page.", 0);
  }
  const result = await response.json().catch(() => ({ error: `The server responded with status ${response.status}.` }));
  if (result.error !== undefined) throw new ServerError(result.error, response.status);
  return result;
}

const withQuery = (path, query) => `${path}?${new URLSearchParams(query)}`;

const server = {
  course: (signal) => send("/api/course", undefined, { signal }),
  lesson: (id, signal) => send(withQuery("/api/course/lesson", { id }), undefined, { signal }),
  misconceptions: (signal) => send("/api/course/misconceptions", undefined, { signal }),
  file: (task) => send(withQuery("/api/course/file", { task })),
  exercise: (id, seed) => send(withQuery("/api/course/exercise", { id, seed })),
  check: (task, code, digest, signal) => send("/api/course/check", { task, code, base_digest: digest }, { signal }),
  save: (task, code, digest, keepalive = false) => send("/api/course/save", { task, code, base_digest: digest }, { keepalive }),
  hint: (task) => send("/api/course/hint", { task }),
  solution: (task) => send("/api/course/solution", { task }),
  skip: (step) => send("/api/course/skip", { step }),
  reset: (task, digest) => send("/api/course/reset", { task, base_digest: digest }),
  read: (lesson) => send("/api/course/read", { lesson }),
  answer: (body) => send("/api/course/answer", body),
};
