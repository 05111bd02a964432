// The browser client, one ES module without a build step:
//
//   import { connect } from "http://127.0.0.1:7708/static/vedette.js";
//   const db = await connect("ws://127.0.0.1:7707", { database: "demo" });
//   const { rows } = await db.execute("MATCH t: Task RETURN t.title");
//   const watch = db.watch("WATCH t: Task RETURN t.title, t.status");
//   for await (const event of watch) console.log(event.type, event.match ?? event.matches);
//
// The client reconnects automatically after a random delay and resumes its watches. If a watch cannot be resumed, it
// emits { type: "resync", reason } and starts again. docs/reference/protocol.md documents the messages.

const PATH = "/realtime/ws";
const MAX_BUFFERED_EVENTS = 10_000;

/** An error of the server. `code` is stable; `retryable` is true if the same call may succeed later. */
export class VedetteError extends Error {
  constructor(payload) {
    super(payload.message);
    this.name = "VedetteError";
    this.code = payload.code;
    this.fields = payload.fields ?? {};
    this.retryable = payload.retryable ?? false;
  }
}

/** Return true if reconnecting with the same token can succeed. */
export function comesBack(code) {
  return ![1002, 1003, 1007, 1008, 1009, 1010].includes(code) && !(code >= 4100 && code <= 4299);
}

/** How an event relates to the events before it: "next", "repeat" or "hole". */
export function follow(chain, event) {
  const last = chain.get(event.partition);
  if (event.prevSeq === null || last === undefined) {
    chain.set(event.partition, event.seq);
    return "next";
  }
  if (event.seq <= last) return "repeat";
  if (event.prevSeq > last) return "hole";
  chain.set(event.partition, event.seq);
  return "next";
}

/** Connect. Resolves after authentication. `token` may be a function that returns a token. */
export async function connect(url, { database = "default", token = "", timeoutMs = 30_000 } = {}) {
  const session = new Session(url, database, token, timeoutMs);
  await session.ready();
  return session;
}

export class Session {
  #url;
  #database;
  #token;
  #timeoutMs;
  #socket = null;
  #open = false;
  #closed = false;
  #failure = null;
  #lastId = 0;
  #tries = 0;
  #answers = new Map();
  #watches = new Map();
  #waiters = [];
  /** Number of reconnects. */
  reconnects = 0;

  constructor(url, database, token, timeoutMs) {
    const address = new URL(url);
    if (address.pathname === "/") address.pathname = PATH;
    this.#url = address.href;
    this.#database = database;
    this.#token = token;
    this.#timeoutMs = timeoutMs;
    this.#connect();
  }

  /** Execute exactly one statement. Resolves to { columns, rows, created, … }. */
  async execute(statement, params = {}) {
    return (await this.#request("execute", { statement, params })).payload;
  }

  /** Add declarations to the ontology. Requires an administrator. */
  async define(ontology) {
    return (await this.#request("define", { ontology })).payload;
  }

  /** Run a WATCH statement. Iterate over its events with `for await`; `close()` ends it. */
  watch(text, params = {}, options = {}) {
    return this.#subscribe({ watch: text, params, ...options });
  }

  /** Watch the documents of a collection, by CEL (`filter`) or a filter list (`filters`). */
  documents(collection, { filter, filters, ...query } = {}) {
    const condition = filter === undefined ? { filters: filters ?? [] } : { filter };
    return this.#subscribe({ query: { collection, ...condition, ...query }, includeData: true, sendSnapshot: true });
  }

  async ack(deliveryId) {
    await this.#request("ack", { deliveryId });
  }

  async nack(deliveryId, { retry = true, delay } = {}) {
    await this.#request("nack", { deliveryId, retry, ...(delay === undefined ? {} : { delay }) });
  }

  async extend(deliveryId, by) {
    await this.#request("extend", { deliveryId, ...(by === undefined ? {} : { by }) });
  }

  /** True while connected. Otherwise the client is reconnecting, unless it was closed permanently. */
  get connected() {
    return this.#open;
  }

  /** Resolves once connected. */
  ready() {
    if (this.#failure) return Promise.reject(this.#failure);
    if (this.#open) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiters = this.#waiters.filter((each) => each.reject !== reject);
        reject(new VedetteError({ code: "E4002", message: `no connection to ${this.#url}` }));
      }, this.#timeoutMs);
      this.#waiters.push({ resolve: () => (clearTimeout(timer), resolve()), reject: (e) => (clearTimeout(timer), reject(e)) });
    });
  }

  close() {
    this.#closed = true;
    this.#socket?.close(1000);
    for (const watch of this.#watches.values()) watch.end();
  }

  async #connect() {
    let token;
    try {
      token = typeof this.#token === "function" ? await this.#token() : this.#token;
    } catch {
      this.#again();
      return;
    }
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    socket.onopen = () => this.#send({ type: "auth", id: "auth", payload: { token, database: this.#database, version: 1 } });
    socket.onmessage = ({ data }) => this.#arrived(JSON.parse(data));
    socket.onclose = ({ code }) => this.#broke(socket, code);
  }

  #send(message) {
    this.#socket.send(JSON.stringify(message));
  }

  #broke(socket, code) {
    if (socket !== this.#socket) return;
    this.#open = false;
    const lost = { code: "E4002", message: "the connection broke before the reply arrived: the request may or may not have been executed" };
    for (const { reject } of this.#answers.values()) reject(new VedetteError(lost));
    this.#answers.clear();
    if (this.#closed) return;
    const renewable = code >= 4100 && code <= 4199 && typeof this.#token === "function";
    if (comesBack(code) || renewable) this.#again();
    else this.#giveUp(new VedetteError({ code: "E4003", message: `the server closed the connection permanently (${code})` }));
  }

  #again() {
    this.reconnects += 1;
    const bound = Math.min(15_000, 200 * 2 ** Math.min(this.#tries++, 16));
    setTimeout(() => this.#closed || this.#connect(), Math.random() * bound);
  }

  #giveUp(error) {
    this.#failure = error;
    this.#closed = true;
    for (const waiter of this.#waiters.splice(0)) waiter.reject(error);
    for (const watch of this.#watches.values()) watch.end(error);
  }

  async #request(type, payload) {
    await this.ready();
    const id = `r${++this.#lastId}`;
    const answer = await new Promise((resolve, reject) => {
      this.#answers.set(id, { resolve, reject });
      this.#send({ type, id, payload });
    });
    if (answer.type === "error") throw new VedetteError(answer.payload);
    return answer;
  }

  #subscribe(asked) {
    const watch = new Watch(`s${++this.#lastId}`, asked, (operation, seq) => this.#manage(watch, operation, seq));
    this.#watches.set(watch.id, watch);
    if (this.#failure) watch.end(this.#failure);
    else if (this.#open) this.#establish(watch);
    return watch;
  }

  #establish(watch) {
    const { type, payload } = watch.request();
    this.#send({ type, id: watch.id, payload });
  }

  #manage(watch, operation, seq) {
    if (operation === "ack") {
      if (this.#open) this.#send({ type: "ack", payload: { subId: watch.id, seq } });
    } else if (operation === "close") {
      this.#watches.delete(watch.id);
      if (this.#open) this.#send({ type: "unsubscribe", id: `r${++this.#lastId}`, payload: { id: watch.id } });
    } else if (this.#open) {
      this.#send({ type: "manage", id: `r${++this.#lastId}`, payload: { subId: watch.id, operation } });
    }
  }

  #arrived(message) {
    const { type, id, payload } = message;
    if (id === "auth") this.#introduced(message);
    else if (type === "event") this.#event(payload);
    else if (type === "snapshot") this.#watches.get(payload.subId)?.snapshot(payload);
    else if (type === "subscribe_ack") this.#watches.get(id)?.acknowledged(payload);
    else if (type === "resume-ack") this.#resumed(message);
    else if (type === "status") this.#status(payload);
    else if (type === "error" && this.#watches.has(id)) this.#refused(id, payload);
    else if (this.#answers.has(id)) {
      this.#answers.get(id).resolve(message);
      this.#answers.delete(id);
    }
  }

  #introduced({ type, payload }) {
    if (type === "error" && payload.retryable) {
      this.#socket.close(1000); // the client then reconnects
      return;
    }
    if (type === "error") {
      this.#giveUp(new VedetteError(payload));
      this.#socket.close(1000);
      return;
    }
    this.#open = true;
    this.#tries = 0;
    for (const waiter of this.#waiters.splice(0)) waiter.resolve();
    for (const watch of this.#watches.values()) this.#establish(watch);
  }

  #event(payload) {
    for (const sub of payload.subIds ?? [payload.subId]) {
      const watch = this.#watches.get(sub);
      if (watch && watch.arrived(payload) === "hole") this.#establish(watch);
    }
  }

  #resumed({ subId, status, reason }) {
    const watch = this.#watches.get(subId);
    if (!watch || status === "ok") return;
    watch.beginAnew(reason);
    this.#establish(watch);
  }

  #status({ status, subIds = [], errors = [] }) {
    for (const sub of subIds) {
      const watch = this.#watches.get(sub);
      if (!watch) continue;
      if (status === "resync-required") {
        this.#establishLater(watch);
      } else if (status === "ended") {
        this.#watches.delete(sub);
        watch.end(errors.length ? new VedetteError(errors[0]) : undefined);
      }
    }
  }

  #refused(id, payload) {
    const watch = this.#watches.get(id);
    if (payload.retryable) {
      this.#establishLater(watch);
      return;
    }
    this.#watches.delete(id);
    if (watch.standing) this.#manage(watch, "close"); // the watch is useless without its snapshot
    watch.end(new VedetteError(payload));
  }

  #establishLater(watch) {
    setTimeout(() => this.#open && this.#watches.has(watch.id) && this.#establish(watch), Math.random() * 500);
  }
}

/**
 * One subscription. Events are buffered until taken; above a limit the server is asked to pause. Taking the next event
 * of a reliable watch confirms the previous one.
 */
export class Watch {
  #asked;
  #manage;
  #chain = new Map();
  #token = null;
  #events = [];
  #taker = null;
  #ended = false;
  #error = null;
  #paused = false;
  #standing = false;
  #resyncReason = null; // reason of a pending resync event; "": emit none
  #reliable = null; // { handle, seqs: position ▸ seq of unconfirmed events, confirmed: confirmed positions }
  #credited = false; // the server limits unconfirmed events

  constructor(id, asked, manage) {
    this.id = id;
    this.#asked = asked;
    this.#manage = manage;
  }

  async *[Symbol.asyncIterator]() {
    for (let event = await this.next(); event !== null; event = await this.next()) yield event;
  }

  /** Return the next event; null if the watch has ended. Throws the error with which the server rejected it. */
  next() {
    this.#confirm();
    if (this.#events.length) return Promise.resolve(this.#take());
    if (this.#error) return Promise.reject(this.#error);
    if (this.#ended) return Promise.resolve(null);
    return new Promise((resolve, reject) => (this.#taker = { resolve, reject }));
  }

  close() {
    this.end();
    this.#manage("close");
  }

  /** True once the server has acknowledged the watch. */
  get standing() {
    return this.#standing;
  }

  #confirm() {
    const position = this.#reliable?.taken;
    if (position === undefined) return;
    this.#reliable.taken = undefined;
    this.#reliable.confirmed.add(position);
    if (this.#reliable.confirmed.size > MAX_BUFFERED_EVENTS) {
      this.#reliable.confirmed.delete(this.#reliable.confirmed.values().next().value);
    }
    const seq = this.#reliable.seqs.get(position);
    this.#reliable.seqs.delete(position);
    if (seq !== undefined) this.#manage("ack", seq);
  }

  #take() {
    const event = this.#events.shift();
    if (this.#reliable?.seqs.has(event.position)) this.#reliable.taken = event.position;
    if (this.#paused && this.#events.length < MAX_BUFFERED_EVENTS / 5) {
      this.#paused = false;
      this.#manage("resume");
    }
    return event;
  }

  #put(event) {
    this.#events.push(event);
    if (this.#taker) {
      const taker = this.#taker;
      this.#taker = null;
      taker.resolve(this.#take());
    } else if (this.#events.length >= MAX_BUFFERED_EVENTS && !this.#paused && !this.#credited) {
      this.#paused = true;
      this.#manage("pause");
    }
  }

  request() {
    if (this.#reliable) return { type: "subscribe", payload: { attach: this.#reliable.handle } };
    if (this.#token === null) return { type: "subscribe", payload: this.#asked };
    return { type: "resume", payload: { token: this.#token, lastSeq: Object.fromEntries(this.#chain) } };
  }

  acknowledged(payload) {
    if (payload.ignored) console.warn(`Vedette: the server ignored unknown keys: ${payload.ignored.join(", ")}`);
    this.#paused = false;
    this.#chain.set(0, payload.seq);
    this.#token = payload.resumeToken ?? this.#token;
    this.#credited = payload.mode === "consume" || payload.delivery === "reliable";
    if (payload.delivery === "reliable" && payload.mode === "watch") {
      this.#reliable ??= { handle: payload.handle, seqs: new Map(), confirmed: new Set(), taken: undefined };
    }
    // An exclusive watch ended with the previous connection, unless it is durable.
    const lost = this.#standing && !this.#reliable && payload.mode !== "consume" ? "connection" : "";
    const reason = this.#resyncReason ?? lost;
    this.#standing = true;
    this.#resyncReason = null;
    if (reason) this.#put({ type: "resync", reason });
  }

  beginAnew(reason) {
    this.#token = null;
    this.#chain.clear();
    this.#resyncReason = reason === "snapshot" ? (this.#resyncReason ?? "") : reason;
  }

  arrived(message) {
    const link = follow(this.#chain, message);
    if (link === "next") {
      this.#token = message.resumeToken ?? this.#token;
      if (this.#repeated(message)) return "repeat";
      this.#put(message.payload ?? { ...message.delta, match: message.delta.document });
    }
    return link;
  }

  /** Return true if a reliable event was already received. If it was confirmed, confirm it again. */
  #repeated({ seq, payload }) {
    const position = payload?.position;
    if (!this.#reliable || position === undefined || payload.delivery_id) return false;
    if (this.#reliable.confirmed.has(position)) {
      this.#manage("ack", seq);
      return true;
    }
    const known = this.#reliable.seqs.has(position);
    this.#reliable.seqs.set(position, seq);
    return known;
  }

  snapshot(payload) {
    this.#chain.set(payload.partition, payload.seq);
    this.#token = payload.resumeToken;
    this.#put({ type: "initial", matches: payload.documents, cursor: payload.cursor });
  }

  end(error) {
    this.#ended = true;
    this.#error = error ?? null;
    if (this.#taker) {
      const taker = this.#taker;
      this.#taker = null;
      if (error) taker.reject(error);
      else taker.resolve(null);
    }
  }
}
