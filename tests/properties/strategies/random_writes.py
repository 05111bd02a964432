"""Random writes to the engine and the model. Writes that the model rejects are skipped."""

from __future__ import annotations

from random import Random

from tests.properties.models.engine_driver import Driver
from tests.properties.models.graph import ModelError, ModelTransaction
from tests.properties.strategies.random_graphs import small

__all__ = ["random_write"]


def random_write(random: Random, driver: Driver, transaction: ModelTransaction) -> str:
    """Return a description of the write."""
    act = random.choice((_spawn, _link, _link, _set, _set, _kill, _unlink, _unlink))
    try:
        return act(random, driver, transaction)
    except ModelError as error:
        return f"nothing: {error}"


def _new_key(transaction: ModelTransaction) -> int:
    return max([0, *transaction.base, *transaction.writes]) + 1


def _spawn(random: Random, driver: Driver, transaction: ModelTransaction) -> str:
    key, type_name = _new_key(transaction), random.choice("ABCD")
    values = {"k": key, "n": small(random)}
    transaction.spawn(key, type_name, values)
    return f"spawn {key} {_done(driver.spawn(key, type_name, values))}"


def _link(random: Random, driver: Driver, transaction: ModelTransaction) -> str:
    view = transaction.view()
    kind = random.choice(list(view.ontology.edges.values()))
    fitting = [[key for key in view.items if view.fits(key, end)] for end in kind.ends]
    if not all(fitting):
        return "nothing to link"
    targets = tuple(random.choice(keys) for keys in fitting)
    key, values = _new_key(transaction), {"w": small(random)}
    if not transaction.link(key, kind.name, targets, {"k": key, **values}, once=True):
        return "linked already"
    return f"link {kind.name}{targets} {_done(driver.link(key, kind.name, targets, {'k': key, **values}))}"


def _set(random: Random, driver: Driver, transaction: ModelTransaction) -> str:
    items = transaction.view().items
    if not items:
        return "nothing to set"
    key = random.choice(list(items))
    name = "n" if items[key].targets is None else "w"
    value = small(random)
    transaction.assign(key, {name: value})
    return f"set {key}.{name} = {value} {_done(driver.assign(key, {name: value}))}"


def _kill(random: Random, driver: Driver, transaction: ModelTransaction) -> str:
    nodes = [item.key for item in transaction.view().items.values() if item.targets is None]
    if not nodes:
        return "nothing to kill"
    key = random.choice(nodes)
    transaction.kill(key, None)
    return f"kill {key} {_done(driver.kill(key, None))}"


def _unlink(random: Random, driver: Driver, transaction: ModelTransaction) -> str:
    edges = [item.key for item in transaction.view().items.values() if item.targets is not None]
    if not edges:
        return "nothing to unlink"
    key = random.choice(edges)
    transaction.unlink({key})
    return f"unlink {key} {_done(driver.unlink(key))}"


def _done(outcome: object) -> str:
    assert not isinstance(outcome, Exception), outcome
    return ""
