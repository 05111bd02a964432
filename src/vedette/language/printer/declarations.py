"""Print ontologies, one attribute per line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from vedette.language.printer.expressions import (
    print_expression,
    print_pattern,
    print_string,
    print_type,
    print_where,
)
from vedette.language.printer.statements import print_statement
from vedette.language.syntax.declarations import (
    AliasDeclaration,
    AttributeDeclaration,
    ConstraintDeclaration,
    Declaration,
    EdgeDeclaration,
    Modifier,
    NodeDeclaration,
    OntologyDeclaration,
    OperationPattern,
    PolicyDeclaration,
    RuleDeclaration,
)
from vedette.language.syntax.expressions import TypeExpression
from vedette.language.syntax.grammar import NAME_PATTERN

__all__ = ["print_declaration", "print_declarations"]

_IDENTIFIER = re.compile(NAME_PATTERN)


def print_declarations(declarations: Iterable[Declaration]) -> str:
    return "\n".join(print_declaration(declaration) for declaration in declarations)


def print_declaration(node: Declaration) -> str:
    """Return the declaration with its doc comment and a final line break."""
    return f"{_doc(node.doc)}{_body(node)}\n"


def _body(node: Declaration) -> str:
    match node:
        case AliasDeclaration():
            return f"type {node.name} = {print_type(node.type)}{_modifiers(node.modifiers)}"
        case NodeDeclaration():
            return _node(node)
        case EdgeDeclaration():
            return _edge(node)
        case ConstraintDeclaration():
            return _constraint(node)
        case RuleDeclaration():
            return _rule(node)
        case PolicyDeclaration():
            return _policy(node)
        case OntologyDeclaration():
            inner = _indent(print_declarations(node.declarations))
            return f"ontology {node.name}{_parents(node.parents)} {{\n{inner}}}"


def _doc(doc: str | None, indent: str = "") -> str:
    if doc is None:
        return ""
    return "".join(f"{indent}---{' ' if line else ''}{line}\n" for line in doc.split("\n"))


def _indent(text: str) -> str:
    return re.sub(r"^(?=.)", "  ", text, flags=re.MULTILINE)


def _parents(parents: tuple[str, ...]) -> str:
    return f": {', '.join(parents)}" if parents else ""


# --- nodes, edges, attributes -----------------------------------------------------------------------------------


def _node(node: NodeDeclaration) -> str:
    modifiers = f" [{', '.join(sorted(node.modifiers))}]" if node.modifiers else ""
    return f"node {node.name}{_parents(node.parents)}{modifiers}{_attributes(node.attributes) or ' {}'}"


def _edge(node: EdgeDeclaration) -> str:
    parameters = ", ".join(f"{parameter.name}: {print_type(parameter.type)}" for parameter in node.parameters)
    return f"edge {node.name}({parameters}){_modifiers(node.modifiers)}{_attributes(node.attributes)}"


def _attributes(nodes: tuple[AttributeDeclaration, ...]) -> str:
    if not nodes:
        return ""
    return f" {{\n{''.join(_attribute(node) for node in nodes)}}}"


def _attribute(node: AttributeDeclaration) -> str:
    default = f" = {print_expression(node.default)}" if node.default is not None else ""
    return f"{_doc(node.doc, '  ')}  {node.name}: {print_type(node.type)}{_modifiers(node.modifiers)}{default},\n"


def _modifiers(nodes: tuple[Modifier, ...]) -> str:
    return f" [{', '.join(_modifier(node) for node in nodes)}]" if nodes else ""


def _modifier(node: Modifier) -> str:
    value: Any = node.value
    if value is None:
        return node.name
    match node.name:
        case ">=" | "<=" | ">" | "<":
            return f"{node.name} {value!r}"
        case "range":
            return f"{value[0]!r}..{value[1]!r}"
        case "in":
            return f"in: [{', '.join(print_expression(item) for item in value)}]"
        case "length":
            return f"length: {value[0]}..{value[1]}"
        case "match":
            return f"match: {print_string(value)}"
        case "default":
            return f"default: {print_expression(value)}"
        case "cardinality":
            parameter, low, high = value
            return f"{parameter} -> {low}..{'*' if high is None else high}"
        case _:
            return f"{node.name}: {value}"


# --- constraints, rules, policies -------------------------------------------------------------------------------


def _constraint(node: ConstraintDeclaration) -> str:
    options = ["soft"] if node.soft else []
    if node.message is not None:
        options.append(f"message: {print_string(node.message)}")
    head = f"constraint {node.name}{_options(options)}:"
    return (
        f"{head} {print_pattern(node.pattern)}{print_where(node.where)} => {print_expression(node.condition)}"
    )


def _rule(node: RuleDeclaration) -> str:
    options = [f"priority: {node.priority}"] if node.priority else []
    options += ["manual"] if node.manual else []
    options += ["inherit_authority"] if node.inherit_authority else []
    actions = ", ".join(print_statement(action) for action in node.actions)
    return f"rule {node.name}{_options(options)}: {print_pattern(node.pattern)}{print_where(node.where)} => {actions}"


def _policy(node: PolicyDeclaration) -> str:
    options = [f"priority: {node.priority}"] if node.priority else []
    operations = " | ".join(_operation(operation) for operation in node.operations)
    message = f" MESSAGE {print_string(node.message)}" if node.message is not None else ""
    verdict = f"{'ALLOW' if node.allow else 'DENY'} IF {print_expression(node.condition)}"
    return f"policy {node.name}{_options(options)}: ON {operations} {verdict}{message}"


def _options(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _operation(node: OperationPattern) -> str:
    """SET has its attribute as the second argument; other operations have it as a suffix."""
    arguments = [_argument(node.variable, node.type)]
    if node.second is not None:
        arguments.append(_argument(*node.second))
    suffix = ""
    if node.attribute is not None:
        if node.second is None and (
            node.operation.endswith("SET") or not _IDENTIFIER.fullmatch(node.attribute)
        ):
            arguments.append(print_string(node.attribute))
        else:
            suffix = f".{node.attribute}"
    return f"{node.operation}{_parentheses(arguments)}{suffix}"


def _argument(variable: str | None, type_: TypeExpression | None) -> str:
    if variable is None:
        return "_"
    return variable if type_ is None else f"{variable}: {print_type(type_)}"


def _parentheses(arguments: list[str]) -> str:
    return "" if arguments == ["_"] else f"({', '.join(arguments)})"
