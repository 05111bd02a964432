"""What the shell understands beside the language: `.help` and its like. One function each, one table of them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.cli.errors import CommandFailed
from vedette.language.schema.model import AttributeType, EdgeType, NodeType
from vedette.language.types import describe

if TYPE_CHECKING:
    from vedette.cli.shell.session import ShellSession

__all__ = ["COMMANDS", "DotCommand", "run_dot_command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DotCommand:
    usage: str
    about: str
    call: Callable[[ShellSession, str], None]
    """With what stands behind the command's name."""


def run_dot_command(conversation: ShellSession, line: str) -> None:
    name, _, argument = line.partition(" ")
    command = COMMANDS.get(name.rstrip(";"))
    if command is None:
        raise CommandFailed(
            f"There is no command {name}. There are {' '.join(COMMANDS)}; .help explains them."
        )
    command.call(conversation, argument.strip().rstrip(";"))


def _help(conversation: ShellSession, _argument: str) -> None:
    rows = [(command.usage, command.about) for command in COMMANDS.values()]
    rows += [
        (
            "MATCH … SPAWN … WATCH …",
            "a statement; goes on below until `;` or an empty line if it is not whole",
        ),
        ("node … edge … rule …", "declarations are defined"),
        ("Tab, Alt-Enter", "completes a word; begins a new line"),
        ("Ctrl-C, Ctrl-D", "drops what is typed; leaves"),
    ]
    conversation.display.show_table(("write", "to"), rows)


def _types(conversation: ShellSession, argument: str) -> None:
    schema = conversation.session.database.schema
    held: list[NodeType | EdgeType] = [*schema.nodes.values(), *schema.edges.values()]
    wanted = [each for each in held if (each.name == argument if argument else not each.is_layer0)]
    if argument and not wanted:
        raise CommandFailed(f"There is no type '{argument}'; .types lists them all.")
    if not wanted:
        conversation.display.note("No types yet. Declare one, for instance: node Task { title: String }")
        return
    conversation.display.show_table(("type", "is", "attributes"), [_type_row(each) for each in wanted])


def _type_row(held: NodeType | EdgeType) -> tuple[str, str, str]:
    if isinstance(held, NodeType):
        words = [*(["abstract"] if held.abstract else []), *(["sealed"] if held.sealed else []), "node"]
        what = " ".join(words) + (f": {', '.join(held.parents)}" if held.parents else "")
    else:
        what = f"edge({', '.join(f'{p.name}: {describe(p.type)}' for p in held.parameters)})"
    return held.name, what, ", ".join(map(_attribute, held.attributes.values())) or "none"


def _attribute(attribute: AttributeType) -> str:
    index = "unique" if attribute.unique else "indexed"  # what is unique has an index anyway
    marks = [word for word in ("required", index, "readonly") if getattr(attribute, word)]
    written = f"{attribute.name}: {describe(attribute.type)}{'?' if attribute.optional else ''}"
    return f"{written} [{', '.join(marks)}]" if marks else written


def _databases(conversation: ShellSession, _argument: str) -> None:
    here = conversation.session.database.name
    rows = [(name, name == here) for name in conversation.home.databases()]
    conversation.display.show_table(("database", "in use"), rows)


def _use(conversation: ShellSession, argument: str) -> None:
    if not argument:
        raise CommandFailed(".use needs the name of a database; .databases lists them.")
    conversation.use(argument)


def _explain(conversation: ShellSession, argument: str) -> None:
    if not argument:
        raise CommandFailed(".explain needs a statement, as in .explain MATCH t: Task RETURN t")
    conversation.run(f"EXPLAIN {argument}")


def _timing(conversation: ShellSession, argument: str) -> None:
    if argument not in ("", "on", "off"):
        raise CommandFailed(".timing takes on or off; alone it changes from one to the other.")
    conversation.show_timing = not conversation.show_timing if not argument else argument == "on"
    conversation.display.note(f"Timing is {'on' if conversation.show_timing else 'off'}.")


def _quit(conversation: ShellSession, _argument: str) -> None:
    conversation.is_closed = True


COMMANDS: Mapping[str, DotCommand] = {
    ".help": DotCommand(usage=".help", about="show this", call=_help),
    ".types": DotCommand(
        usage=".types [NAME]", about="list the types of the ontology, or show one", call=_types
    ),
    ".databases": DotCommand(usage=".databases", about="list the databases here", call=_databases),
    ".use": DotCommand(usage=".use NAME", about="go on in another database; made on first use", call=_use),
    ".explain": DotCommand(usage=".explain STATEMENT", about="show how it would be executed", call=_explain),
    ".timing": DotCommand(usage=".timing on|off", about="show how long each statement takes", call=_timing),
    ".quit": DotCommand(usage=".quit", about="leave", call=_quit),
}
