"""Layer 0: the system types. MATCH and WATCH can read them; statements cannot write them.

They describe sessions, watches, their events and dead letters, and the ontology itself
(docs/reference/language/layer0.md).
"""

from __future__ import annotations

from functools import cache

from vedette.language.parser import parse_declarations
from vedette.language.schema.extend import extend_schema
from vedette.language.schema.model import Schema

__all__ = ["LAYER0", "layer0_schema"]

LAYER0 = """\
--- A connection or an embedded session; the actors bound in it are not part of the graph.
node _Session [sealed] {
  started_at: Timestamp [required]
}

--- A standing query. Its id is the handle that WATCH returns.
node _Watch [sealed] {
  pattern: String [required],        -- serialized pattern
  mode: String [required],           -- "watch" | "consume"
  group: String?,                    -- group name for competing consumers
  status: String [required],         -- "active" | "paused" | "cancelled"
  ordering: String = "arrival",      -- ordering mode
  delivery: String = "best_effort",  -- delivery guarantee
  visibility: String = "committed",  -- visibility mode
  buffer_size: Int = 1000,           -- max buffered events
  on_full: String = "drop",          -- "drop" | "block" | "error"
  created_at: Timestamp [required],
  events_delivered: Int = 0,         -- counter
  events_pending: Int = 0,           -- current buffer size
  last_event_at: Timestamp?,
  doc: String?,
  name: String?,                     -- `name = WATCH …`, or a trailing AS
  session: _Session?                 -- the session that owns it; null when it outlived its session
}

--- An event of a watch; the latest of them are kept.
node _WatchEvent [sealed] {
  event_type: String [required],     -- "initial" | "added" | "removed" | "changed" | "consumed" | "window"
  tick: Int [required],
  delivery_id: String?,              -- for consume mode
  created_at: Timestamp [required]
}

--- A match that could not be consumed.
node _DeadLetter [sealed] {
  original_match: String [required], -- serialized match data
  failure_reason: String [required],
  delivery_attempts: Int [required],
  created_at: Timestamp [required],
  failures: Int = 0,                 -- attempts that were rejected or whose consumer was lost
  timeouts: Int = 0,                 -- attempts that exceeded ack_timeout
  cause: String?,                    -- what the last consumer said went wrong
  element: String?                   -- the id of the consumed element: REDRIVE queues it again
}

--- Logical time; there is one.
node _TickState [sealed, singleton] {
  global_tick: Int [required],
  last_tick_at: Timestamp?
}

--- An ontology by the name it was declared under.
node _Ontology [sealed] {
  name: String [required]
}

node _NodeType [sealed] {
  name: String [required],
  abstract: Bool = false,
  sealed: Bool = false,
  parents: String = "",              -- names, joined with ", "
  doc: String?
}

node _EdgeType [sealed] {
  name: String [required],
  arity: Int [required],
  parameters: String = "",           -- as declared: "task: Task, person: Person"
  symmetric: Bool = false,
  no_self: Bool = false,
  acyclic: Bool = false,
  unique: Bool = false,
  on_kill_source: String = "unlink",
  on_kill_target: String = "unlink",
  doc: String?
}

node _AttributeDef [sealed] {
  name: String [required],
  owner: String [required],          -- the node or edge type that declares it
  type: String [required],           -- as declared: "Int", "Person | Team"
  optional: Bool = false,
  required: Bool = false,
  unique: Bool = false,
  readonly: Bool = false,
  indexed: Bool = false,
  doc: String?
}

node _ConstraintDef [sealed] {
  name: String [required],
  soft: Bool = false,
  message: String?,
  doc: String?
}

node _RuleDef [sealed] {
  name: String [required],
  priority: Int = 0,
  manual: Bool = false,
  doc: String?
}

node _PolicyRule [sealed] {
  name: String [required],
  allow: Bool [required],
  priority: Int = 0,
  message: String?,
  doc: String?
}

edge _session_has_watch(session: _Session, watch: _Watch) {}

edge _watch_event(watch: _Watch, event: _WatchEvent) {
  position: Int [required]           -- ordering within watch
}

edge _watch_dead_letter(watch: _Watch, letter: _DeadLetter) {}

edge _ontology_declares_watch(ontology: _Ontology, watch: _Watch) {}

--- Joins a dead letter with the node that the watch names as its destination.
edge _dead_letter_in(destination: any, letter: _DeadLetter) {}

constraint _watch_has_pattern:
  w: _Watch => w.pattern != null AND length(w.pattern) > 0

constraint _watch_valid_mode:
  w: _Watch => w.mode = "watch" OR w.mode = "consume"

constraint _watch_valid_status:
  w: _Watch => w.status = "active" OR w.status = "paused" OR w.status = "cancelled"

constraint _watch_valid_on_full:
  w: _Watch => w.on_full = "drop" OR w.on_full = "block" OR w.on_full = "error"
"""


@cache
def layer0_schema() -> Schema:
    """Return the schema of a new database, which contains only Layer 0."""
    return extend_schema(Schema(), parse_declarations(LAYER0), LAYER0, layer0=True)
