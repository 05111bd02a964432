// The web console: statements and live watches of one database, built on the browser client only.
// Server data is only ever inserted as text, never as HTML.

import { connect } from "./vedette.js";

const MAX_ROWS = 200;
const MAX_EVENTS = 100;
const place = (id) => document.getElementById(id);
let session = null;

/** Create an element with a text, attributes and children. */
function make(name, text = "", ...children) {
  const element = document.createElement(name);
  element.textContent = text;
  element.append(...children);
  return element;
}

function showStatus(words, state) {
  place("status").textContent = words;
  place("status").dataset.state = state;
}

function cell(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Create a table of at most MAX_ROWS rows. `fresh` marks new rows. */
function tableOf(columns, rows, fresh = () => false) {
  const head = make("tr", "", ...columns.map((column) => make("th", column)));
  const body = rows.slice(0, MAX_ROWS).map((row) => {
    const line = make("tr", "", ...row.map((value) => make("td", cell(value))));
    if (fresh(row)) line.className = "fresh";
    return line;
  });
  const table = make("table", "", make("thead", "", head), make("tbody", "", ...body));
  return rows.length > MAX_ROWS ? [table, make("p", `… and ${rows.length - MAX_ROWS} more`)] : [table];
}

/** Rows that a watch currently matches, by content; equal rows are counted. */
export class Matches {
  #rows = new Map();

  get rows() {
    return [...this.#rows.values()].flatMap(({ row, count }) => Array(count).fill(row));
  }

  begin(rows) {
    this.#rows.clear();
    for (const row of rows) this.#add(row);
  }

  /** Apply an event. Return the row that it added, if any. */
  take({ type, match, matches, prev }) {
    if (type === "initial") this.begin(matches ?? []);
    if (type === "removed") this.#drop(match);
    if (type === "changed" && prev) this.#drop(prev);
    if (type === "added" || type === "changed") return this.#add(match);
    return null;
  }

  #add(row) {
    const key = JSON.stringify(row);
    this.#rows.set(key, { row, count: (this.#rows.get(key)?.count ?? 0) + 1 });
    return row;
  }

  #drop(row) {
    const key = JSON.stringify(row);
    const count = (this.#rows.get(key)?.count ?? 0) - 1;
    if (count > 0) this.#rows.set(key, { row, count });
    else this.#rows.delete(key);
  }
}

/** Create the element for one reply; the latest comes first. */
function answer(text, close) {
  const article = make("article", "", make("header", "", make("h2", text)));
  const button = make("button", "Close");
  button.type = "button";
  button.onclick = () => {
    close?.();
    article.remove();
  };
  article.firstChild.append(button);
  const content = make("div");
  article.append(content);
  place("answers").prepend(article);
  return content;
}

function fail(content, error) {
  const line = make("p", error.message);
  line.className = "error";
  content.append(line);
}

async function run(text) {
  const content = answer(text);
  try {
    const { columns, rows, warnings, ...counts } = await session.execute(text);
    if (columns.length) content.append(...tableOf(columns, rows));
    const done = ["created", "modified", "deleted", "linked", "unlinked"].filter((name) => counts[name]);
    const words = done.map((name) => `${counts[name]} ${name}`);
    if (columns.length) words.unshift(rows.length === 1 ? "1 row" : `${rows.length} rows`);
    content.append(make("p", words.join(", ") || "done"), ...warnings.map((warning) => make("p", warning)));
  } catch (error) {
    fail(content, error);
  }
}

async function follow(text) {
  const watch = session.watch(text);
  const content = answer(text, () => watch.close());
  const matches = new Matches();
  const events = make("ol");
  try {
    for await (const event of watch) {
      const fresh = matches.take(event);
      const columns = [...new Set(matches.rows.flatMap((row) => Object.keys(row)))];
      const rows = matches.rows.map((row) => columns.map((column) => row[column]));
      const isFresh = (row) => fresh !== null && columns.every((column, n) => row[n] === fresh[column]);
      events.prepend(make("li", `${event.type} ${cell(event.match ?? event.reason ?? event.matches?.length ?? "")}`));
      if (events.children.length > MAX_EVENTS) events.lastChild.remove();
      content.replaceChildren(...tableOf(columns, rows, isFresh), events);
    }
    content.append(make("p", "the watch has ended"));
  } catch (error) {
    fail(content, error);
  }
}

async function begin(event) {
  event?.preventDefault();
  session?.close();
  session = null;
  const database = place("database").value || "default";
  showStatus("connecting …", "away");
  try {
    const { webSocketPort, secure } = await about;
    const address = `${secure ? "wss" : "ws"}://${location.hostname}:${webSocketPort}`;
    session = await connect(address, { database, token: place("token").value });
    showStatus(`connected to ${database}`, "here");
  } catch (error) {
    showStatus(error.message, "away");
  }
}

/** Show whether the client is connected; it reconnects automatically. */
function showConnection() {
  if (session === null) return;
  const database = place("database").value || "default";
  if (session.connected) showStatus(`connected to ${database}`, "here");
  else showStatus("disconnected: reconnecting …", "away");
}

async function onSubmit(event) {
  event?.preventDefault();
  const text = place("text").value.trim();
  if (!text) return;
  if (session === null) await begin();
  if (session !== null) await (/^watch\b/i.test(text) ? follow(text) : run(text));
}

const about = fetch("/v1/server").then((found) => found.json());
about.then(({ tokens, databases }) => {
  place("token-field").hidden = !tokens;
  place("database").value = databases?.includes("demo") ? "demo" : "default";
  place("text").value = databases?.includes("demo") ? "WATCH t: Task RETURN t.title, t.status" : "";
  if (!tokens) begin();
});
setInterval(showConnection, 1000);
place("connection").onsubmit = begin;
place("statement").onsubmit = onSubmit;
place("text").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) onSubmit(event);
};
