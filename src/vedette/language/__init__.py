"""The statement language: from text to closures that run on a graph.

The stages, in the order in which a statement passes them:

1. `parser.template`   split the text into a template and its literals; a known template skips stages 2 to 6
2. `parser.lexer`      text to tokens
3. `parser`            tokens to a syntax tree (`syntax`), with source spans and all syntax errors at once
4. `resolve`           tree and schema to a typed tree: names become registers and attribute indexes
5. `plan`              the order in which the parts of a pattern are searched, and the index that each step uses
6. `compile`           plan and expressions to nested closures; each match is pushed to a consumer
7. run                 the engine calls the closures with an `ExecutionContext`

Beside the stages:

- `schema`             an ontology's declarations to a `Schema`: types, layouts, constraints, rules, policies
- `functions`          operators, functions and aggregates over plain values
- `printer`            a tree back to canonical text
- `compile.affected_matches`  the matches that a set of changes may have altered, for rules, constraints and watches
- `diagnostics`        source spans and collected errors

Each stage is called once per statement; there are no rewrite passes. A stage imports only the stages before it
(docs/design/layers.md).
"""

__all__: list[str] = []
