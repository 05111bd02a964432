"""Job loops over the network: renews the leases of buffered deliveries and drops deliveries that are no longer held.

The server delivers `prefetch` jobs at a time, so some are buffered while one is processed. An expired lease would count
an attempt that never started. Before each job, the leases of all buffered jobs that are older than a quarter of their
time are renewed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from vedette.change import Event
from vedette.client.watch import RemoteWatch
from vedette.errors import VedetteError

__all__ = ["DeliveredJob", "JobFeed", "RemoteJob"]

log = logging.getLogger(__name__)
_MAX_CAUSE_CHARS = 500


class DeliveredJob:
    """One delivery.

    An Exception in its block is logged, stored as the cause and suppressed: the job is retried or becomes a dead
    letter. Other exceptions (Ctrl-C, a cancelled task) are raised and count no attempt.
    """

    def __init__(self, event: Event) -> None:
        self.event = event
        self.ended = False
        """True once the job was acknowledged, requeued or rejected."""

    @property
    def match(self) -> Any:
        return self.event.match

    @property
    def delivery_id(self) -> str | None:
        return self.event.delivery_id

    @property
    def attempt(self) -> int:
        """Number of this attempt, starting at 1."""
        return int(self.event.attributes.get("attempt", 1))

    def log_failure(self, error: BaseException) -> str:
        """Log the error of a failed block and return it as the cause."""
        cause = f"{type(error).__name__}: {error}"[:_MAX_CAUSE_CHARS]
        log.warning(
            "Job %s failed at attempt %d: %s",
            self.delivery_id,
            self.attempt,
            cause,
            exc_info=error,
            extra={"action": "job.failed", "delivery": self.delivery_id},
        )
        return cause

    def log_lease_expired(self, problem: VedetteError) -> None:
        """Log that the lease expired (E8004), so that the loop continues: the job may be delivered elsewhere. Raise
        other errors.
        """
        if problem.code != "E8004":
            raise problem
        log.warning(
            "Job %s finished after its lease; it is delivered again. Extend the lease or raise ack_timeout",
            self.delivery_id,
            extra={"action": "job.late", "delivery": self.delivery_id},
        )


class JobFeed:
    """Source of deliveries for the loops of both clients."""

    def __init__(self, watch: RemoteWatch, timeout: float | None) -> None:
        self._watch = watch
        self._timeout = timeout
        self._renewed: dict[str, float] = {}
        """Delivery ▸ time of the last lease renewal, on the loop's clock."""

    async def next(self) -> Event | None:
        """Return the next delivery; None if none arrived for `timeout` seconds or the watch has ended."""
        while (event := await self._watch.next(self._timeout)) is not None:
            if event.delivery_id is not None and await self._still_held(event):
                return event
        return None

    async def _still_held(self, event: Event) -> bool:
        """Renew leases that are due. Return True if this delivery is still held."""
        patience = self._watch.lease_seconds / 4
        now = asyncio.get_running_loop().time()
        waiting = [event, *self._watch.buffered_deliveries()]
        ids = {str(each.delivery_id) for each in waiting}
        self._renewed = {id: at for id, at in self._renewed.items() if id in ids}
        due = [each for each in waiting if now - self._since(each) > patience]
        if not due:
            return True
        lost = {each.delivery_id for each in due} - set(await asyncio.gather(*map(self._renew, due)))
        self._watch.drop_deliveries(lost)
        return event.delivery_id not in lost

    def _since(self, event: Event) -> float:
        return self._renewed.get(str(event.delivery_id), float(event.attributes["arrived"]))

    async def _renew(self, event: Event) -> str | None:
        """Renew one lease. Return the delivery id, or None if the lease was lost."""
        try:
            await self._watch.extend(event)
        except VedetteError as error:
            if error.code != "E8004":
                raise
            return None
        self._renewed[str(event.delivery_id)] = asyncio.get_running_loop().time()
        return event.delivery_id

    async def close(self) -> None:
        """Cancel the watch, so that other consumers get its deliveries at once. A durable watch is detached instead."""
        watch = self._watch
        if watch.status == "cancelled" or watch.closed:
            return
        if watch.delivery != "reliable":
            await watch.cancel()
            return
        for event in watch.buffered_deliveries():
            watch.release(event)
        await watch.detach()


class RemoteJob(DeliveredJob):
    """One delivery of a consume loop. `async with job:` ACKs if the block succeeds and NACKs if it raises."""

    def __init__(self, watch: RemoteWatch, event: Event) -> None:
        super().__init__(event)
        self._watch = watch

    async def ack(self) -> None:
        self.ended = True
        await self._watch.ack(self.event)

    async def nack(self, *, retry: bool = True, delay: float | None = None, cause: str | None = None) -> None:
        self.ended = True
        await self._watch.nack(self.event, retry=retry, delay=delay, cause=cause)

    async def reject(self, reason: str | None = None) -> None:
        """Reject without retry: the job becomes a dead letter."""
        await self.nack(retry=False, cause=reason)

    async def extend(self, by: float | None = None) -> None:
        await self._watch.extend(self.event, by)

    async def __aenter__(self) -> RemoteJob:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            if not self.ended:
                self._watch.release(self.event)
            return False
        try:
            if error is not None and not self.ended:
                await self.nack(cause=self.log_failure(error))
            elif not self.ended:
                await self.ack()
        except VedetteError as problem:
            self.log_lease_expired(problem)
        return error is not None
