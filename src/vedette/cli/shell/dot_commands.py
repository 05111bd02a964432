"""Commands of the shell that begin with a dot: one function each, and a table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vedette.cli.errors import CommandFailed
from vedette.cli.shell.session import ShellSession
from vedette.language.schema.model import AttributeType, EdgeType, NodeType
from vedette.language.types import describe

__all__ = ["COMMANDS", "DotCommand", "run_dot_command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DotCommand:
    usage: str
    about: str
    call: Callable[[ShellSession, str], None]
    """Called with the shell and the text after the command's name."""


def run_dot_command(shell: ShellSession, line: str) -> None:
    name, _, argument = line.partition(" ")
    command = COMMANDS.get(name.rstrip(";"))
    if command is None:
        raise CommandFailed(
            f"Unknown command {name}. The commands are {' '.join(COMMANDS)}; .help explains them."
        )
    command.call(shell, argument.strip().rstrip(";"))


def _help(shell: ShellSession, _argument: str) -> None:
    rows = [(command.usage, command.about) for command in COMMANDS.values()]
    rows += [
        (
            "MATCH … SPAWN … WATCH …",
            "run a statement; an incomplete one continues until `;` or an empty line",
        ),
        ("node … edge … rule …", "define declarations"),
        ("Tab, Alt-Enter", "complete a word; start a new line"),
        ("Ctrl-C, Ctrl-D", "discard the input; exit"),
    ]
    shell.display.show_table(("input", "effect"), rows)


def _types(shell: ShellSession, argument: str) -> None:
    schema = shell.session.database.schema
    types: list[NodeType | EdgeType] = [*schema.nodes.values(), *schema.edges.values()]
    chosen = [each for each in types if (each.name == argument if argument else not each.is_layer0)]
    if argument and not chosen:
        raise CommandFailed(f"Unknown type '{argument}'. .types lists all types.")
    if not chosen:
        shell.display.note("No types yet. Declare one, for instance: node Task { title: String }")
        return
    shell.display.show_table(("type", "is", "attributes"), [_type_row(each) for each in chosen])


def _type_row(declared: NodeType | EdgeType) -> tuple[str, str, str]:
    if isinstance(declared, NodeType):
        words = [
            *(["abstract"] if declared.abstract else []),
            *(["sealed"] if declared.sealed else []),
            "node",
        ]
        what = " ".join(words) + (f": {', '.join(declared.parents)}" if declared.parents else "")
    else:
        what = f"edge({', '.join(f'{p.name}: {describe(p.type)}' for p in declared.parameters)})"
    return declared.name, what, ", ".join(map(_attribute, declared.attributes.values())) or "none"


def _attribute(attribute: AttributeType) -> str:
    index = "unique" if attribute.unique else "indexed"  # a unique attribute is always indexed
    marks = [word for word in ("required", index, "readonly") if getattr(attribute, word)]
    written = f"{attribute.name}: {describe(attribute.type)}{'?' if attribute.optional else ''}"
    return f"{written} [{', '.join(marks)}]" if marks else written


def _databases(shell: ShellSession, _argument: str) -> None:
    here = shell.session.database.name
    rows = [(name, name == here) for name in shell.vedette.databases()]
    shell.display.show_table(("database", "in use"), rows)


def _use(shell: ShellSession, argument: str) -> None:
    if not argument:
        raise CommandFailed(".use needs the name of a database; .databases lists them.")
    shell.use(argument)


def _explain(shell: ShellSession, argument: str) -> None:
    if not argument:
        raise CommandFailed(".explain needs a statement, as in .explain MATCH t: Task RETURN t")
    shell.run(f"EXPLAIN {argument}")


def _timing(shell: ShellSession, argument: str) -> None:
    if argument not in ("", "on", "off"):
        raise CommandFailed(".timing takes on or off; without an argument it toggles.")
    shell.show_timing = not shell.show_timing if not argument else argument == "on"
    shell.display.note(f"Timing is {'on' if shell.show_timing else 'off'}.")


def _quit(shell: ShellSession, _argument: str) -> None:
    shell.is_closed = True


COMMANDS: Mapping[str, DotCommand] = {
    ".help": DotCommand(usage=".help", about="show this help", call=_help),
    ".types": DotCommand(
        usage=".types [NAME]", about="list the types of the ontology, or show one", call=_types
    ),
    ".databases": DotCommand(usage=".databases", about="list the databases", call=_databases),
    ".use": DotCommand(
        usage=".use NAME", about="switch to another database; created on first use", call=_use
    ),
    ".explain": DotCommand(
        usage=".explain STATEMENT", about="show how a statement would be executed", call=_explain
    ),
    ".timing": DotCommand(usage=".timing on|off", about="show how long each statement takes", call=_timing),
    ".quit": DotCommand(usage=".quit", about="exit", call=_quit),
}
