"""Print a tree as canonical text. `parse(print(tree)) == tree` for every tree that the parser builds."""

from vedette.language.printer.declarations import print_declaration, print_declarations
from vedette.language.printer.expressions import print_expression, print_pattern, print_type, print_value
from vedette.language.printer.statements import print_script, print_statement, print_watch_options

__all__ = [
    "print_declaration",
    "print_declarations",
    "print_expression",
    "print_pattern",
    "print_script",
    "print_statement",
    "print_type",
    "print_value",
    "print_watch_options",
]
