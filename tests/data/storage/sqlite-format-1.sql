-- A database as format 1 wrote it. Never edit: every later Vedette must be able to open it.
PRAGMA application_id = 1447318612;
PRAGMA user_version = 1;
CREATE TABLE definitions (position INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE elements (
    created INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL,
    targets TEXT, attributes TEXT NOT NULL);
CREATE TABLE journal (
    "offset" INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, partition INTEGER NOT NULL,
    seq INTEGER NOT NULL, event_id TEXT, tick INTEGER NOT NULL, "transaction" TEXT NOT NULL, cause TEXT,
    collection TEXT NOT NULL, key TEXT NOT NULL, before TEXT, after TEXT, time_ms INTEGER NOT NULL);
CREATE UNIQUE INDEX journal_events ON journal (source, event_id) WHERE event_id IS NOT NULL;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO definitions VALUES (1, 'node Task { title: String }'), (2, 'edge needs(a: Task, b: Task)');
INSERT INTO elements VALUES
    (1, 'n1', 'Task', NULL, '{"title":"dig"}'),
    (2, 'e1', 'needs', '["n2", "n1"]', '{}'),
    (3, 'n2', 'Task', NULL, '{"title":"plant"}');
INSERT INTO journal VALUES
    (4, 'graph', 0, 2, NULL, 2, 't2', 'statement', 'Task', 'n1', NULL, '{"id":"n1","title":"dig"}', 1700000000000),
    (5, 'shop', 3, 9, 'ev-1', 0, 'x', NULL, 'shop::orders', 'o1', '{"a":1}', NULL, 1700000000001);
INSERT INTO meta VALUES
    ('store.boot', '3'), ('store.epoch', '1699999999999'), ('store.first', '4'), ('store.tick', '2'), ('token', 'abc');
