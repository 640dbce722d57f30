// Requests to the server with its token, and its feed of server-sent events. `EventSource` cannot send a token, so the
// stream is read here.

const KEY = "dsrd-token";
const WAITS = [500, 1000, 2000, 5000, 10000];  // milliseconds before the feed is tried again

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

export class Refused extends Error {}  // the token is missing or wrong

function headers(more = {}) {
  return token.get() ? { ...more, Authorization: `Bearer ${token.get()}` } : more;
}

/** An answer as JSON; an error with the server's words. */
export async function ask(path) {
  const answer = await fetch(path, { headers: headers({ Accept: "application/json" }) });
  if (answer.status === 401) throw new Refused("the server refused the token");
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(words(body) || `the server answered ${answer.status}`);
  return body;
}

function words(body) {
  const said = body && (body.detail ?? body.error);
  if (Array.isArray(said)) return said.map((each) => each.msg || String(each)).join("; ");
  return typeof said === "string" ? said : null;
}

/** Read the feed for ever: `on.events`, `on.state` with their data, `on.live()`, `on.lost(why)`, `on.refused()`. */
export async function listen(path, on) {
  let last = null, failures = 0;
  for (;;) {
    try {
      const answer = await fetch(path, { headers: headers(last === null ? {} : { "Last-Event-ID": last }), cache: "no-store" });
      if (answer.status === 401) {
        await on.refused();
        continue;
      }
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      on.live();
      for await (const message of messages(answer.body)) {
        failures = 0;
        if (message.id !== null) last = message.id;
        if (on[message.event]) on[message.event](JSON.parse(message.data));
      }
      throw new Error("the server closed the connection");
    } catch (error) {
      on.lost(error instanceof TypeError ? "no connection to the server" : error.message);
    }
    await new Promise((done) => setTimeout(done, WAITS[Math.min(failures, WAITS.length - 1)]));
    failures += 1;
  }
}

async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const message = { event: "message", id: null, data: "" };
      for (const line of text.slice(0, end).split("\n")) {
        const colon = line.indexOf(":"), field = line.slice(0, colon), content = line.slice(colon + 1).trimStart();
        if (field === "data") message.data += content;
        else if (field in message) message[field] = content;
      }
      text = text.slice(end + 2);
      if (message.data) yield message;
    }
  }
}
