// A database with live queries, told by Python what to do: a line of JSON in, a line of JSON out (benchmarks/live/node.py).
//
//   {do: "start", pattern, watches, high, ranks}   people with these ranks in a ring, and the watches
//   {do: "change", changes: [[key, rank], …]}      ▸ {seen}: how many events arrived
//   {do: "delays", count, pace}                    ▸ {delays}: seconds from each change to its event

import { createInterface } from "node:readline";

const PATIENCE_MS = 60_000;

class Counter {
  constructor() {
    this.seen = 0;
    this.target = Infinity;
  }

  add(count) {
    this.seen += count;
    if (this.seen >= this.target) this.reached();
  }

  // Resolves when `count` more than `start` have been seen.
  until(start, count) {
    if (this.seen >= start + count) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`${this.seen - start} of ${count} events in ${PATIENCE_MS} ms`)),
        PATIENCE_MS,
      );
      this.target = start + count;
      this.reached = () => {
        this.target = Infinity;
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

const events = new Counter();

// SurrealDB in memory. LIVE looks at one table; that a record has left the filter is not told.
async function surrealdb() {
  const { Surreal, createRemoteEngines } = await import("surrealdb");
  const { createNodeEngines } = await import("@surrealdb/node");
  const db = new Surreal({ engines: { ...createRemoteEngines(), ...createNodeEngines() } });
  await db.connect("mem://");
  await db.use({ namespace: "bench", database: "bench" });
  return {
    async start({ pattern, watches, high, ranks }) {
      if (pattern === "hop") throw new Error("LIVE SELECT looks at one table: it cannot join");
      await db.query("DEFINE TABLE person");
      const people = ranks.map((rank, key) => ({ id: key, key, rank }));
      await db.query("INSERT INTO person $people RETURN NONE", { people });
      this.high = pattern === "filter" ? high : -1;
      for (let key = 0; key < watches; key++) {
        const where = pattern === "filter" ? `rank > ${high}` : `key = ${key}`;
        const [id] = await db.query(`LIVE SELECT key, rank FROM person WHERE ${where}`);
        (await db.liveOf(id)).subscribe(() => events.add(1));
      }
    },
    // How many events these changes lead to.
    expected(changes) {
      return changes.filter(([, rank]) => rank > this.high).length;
    },
    change(key, rank) {
      return db.query("UPDATE type::record('person', $key) SET rank = $rank RETURN NONE", { key, rank });
    },
    close: () => db.close(),
  };
}

// PostgreSQL in WebAssembly, in memory. A change of a table runs every query over it again, in the database.
async function pglite() {
  const { PGlite } = await import("@electric-sql/pglite");
  const { live } = await import("@electric-sql/pglite/live");
  const pg = await PGlite.create({ extensions: { live } });
  const queries = {
    filter: (_, high) => `SELECT key, rank FROM person WHERE rank > ${high}`,
    hop: (_, high) =>
      `SELECT a.key AS key, b.key AS other FROM person a JOIN knows ON knows.a = a.key
       JOIN person b ON b.key = knows.b WHERE a.rank > ${high}`,
    keys: (key) => `SELECT key, rank FROM person WHERE key = ${key}`,
  };
  return {
    async start({ pattern, watches, high, ranks }) {
      await pg.exec(`CREATE TABLE person (key int PRIMARY KEY, rank int NOT NULL);
        CREATE TABLE knows (a int PRIMARY KEY, b int NOT NULL)`);
      for (const [key, rank] of ranks.entries()) {
        await pg.query("INSERT INTO person VALUES ($1, $2)", [key, rank]);
        await pg.query("INSERT INTO knows VALUES ($1, $2)", [key, (key + 1) % ranks.length]);
      }
      for (let key = 0; key < watches; key++) {
        const query = queries[pattern](key, high);
        // A change of the order of rows is told as well, and counts for nothing here.
        const callback = (told) =>
          events.add(told.filter((c) => c.__op__ !== "UPDATE" || c.__changed_columns__.includes("rank")).length);
        await pg.live.changes({ query, key: "key", callback });
      }
    },
    expected: (changes) => changes.length,
    change: (key, rank) => pg.query("UPDATE person SET rank = $2 WHERE key = $1", [key, rank]),
    close: () => pg.close(),
  };
}

async function change(database, changes) {
  const start = events.seen;
  for (const [key, rank] of changes) await database.change(key, rank);
  await events.until(start, database.expected(changes));
  return { seen: changes.length };
}

// One change after another at a steady pace; the first person moves in and out of the filter, of which the way in counts.
async function delays(database, count, pace) {
  const found = [];
  for (let number = 0; found.length < count; number++) {
    await new Promise((resolve) => setTimeout(resolve, 1000 / pace));
    const start = events.seen;
    const began = performance.now();
    if (number % 2) {
      const [, arrived] = await Promise.all([
        database.change(0, 100),
        events.until(start, 1).then(() => performance.now()),
      ]);
      found.push((arrived - began) / 1000);
    } else {
      await database.change(0, 0);
    }
  }
  return { delays: found };
}

const engines = { surrealdb, pglite };
const database = await engines[process.argv[2]]();
for await (const line of createInterface({ input: process.stdin })) {
  let answer = {};
  try {
    const asked = JSON.parse(line);
    if (asked.do === "start") await database.start(asked);
    if (asked.do === "change") answer = await change(database, asked.changes);
    if (asked.do === "delays") answer = await delays(database, asked.count, asked.pace);
  } catch (error) {
    answer = { problem: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await database.close();
process.exit(0);
