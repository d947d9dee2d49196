"""The client for asyncio. Waits run in threads of their own, one for each acquire under way.

    client = holdfast_client.aio.Client(["10.0.0.1:6379", "10.0.0.2:6379"])
    async with client.lock("nightly") as held:    # the task is cancelled on a loss, and LockLost is raised here
        await write(row, fence=held.fence)
"""

from __future__ import annotations

import asyncio
import functools
import ssl as _ssl
import threading
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Optional, Sequence, Tuple

from . import _client
from ._errors import HoldfastError, LockLost

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

__all__ = ["Client", "Lock"]


async def _in_thread(call: Callable[..., Any], *args: Any, undo: Optional[Callable[[Any], None]] = None) -> Any:
    """What call returns. If the task is cancelled, undo is called with what it returned nevertheless."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def give_back(result: Any) -> None:
        if undo is not None:
            threading.Thread(target=undo, args=(result,), daemon=True).start()

    def deliver(result: Any, error: Optional[BaseException]) -> None:
        if future.cancelled():
            if error is None:
                give_back(result)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = call(*args)
        except BaseException as e:
            error = e
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:  # the loop is closed
            if error is None:
                give_back(result)

    threading.Thread(target=run, name="holdfast", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        # The task may be cancelled between the result and its next turn.
        if not future.cancelled() and future.exception() is None:
            give_back(future.result())
        raise


class Lock:
    """A lock as holdfast_client.Lock is one, for tasks."""

    def __init__(self, lock: _client.Lock) -> None:
        self._lock = lock
        self._task: Optional["asyncio.Task[Any]"] = None
        self._loss: Optional[LockLost] = None
        self.check, self.on_lost = lock.check, lock.on_lost

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait for the lock, at most timeout seconds; -1: for ever. A task that is cancelled gives up its place."""
        return bool(await self._ask(self._lock.acquire, blocking, timeout))

    async def _ask(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return await _in_thread(call, *args, undo=self._give_back)
        except asyncio.CancelledError:
            self._lock.cancel()
            raise

    def _give_back(self, granted: Any) -> None:
        if granted:
            try:
                self._lock.release()
            except HoldfastError:
                pass

    async def release(self) -> None:
        """Release the lock. Raises LockLost if it was lost before."""
        await _in_thread(self._lock.release)

    @property
    def fence(self) -> int:
        """The number of this hold: see holdfast_client.Lock."""
        return self._lock.fence

    @property
    def lost(self) -> Optional[LockLost]:
        """Why the lock is no longer held; None while it is."""
        return self._lock.lost

    async def __aenter__(self) -> "Lock":
        await self._ask(self._lock.__enter__)
        loop, self._task, self._loss = asyncio.get_running_loop(), asyncio.current_task(), None
        self._lock.on_lost(lambda loss: loop.call_soon_threadsafe(self._interrupt, loss))
        return self

    def _interrupt(self, loss: LockLost) -> None:
        if self._task is not None:
            self._loss = loss
            self._task.cancel()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        task, self._task = self._task, None
        if self._loss is not None and isinstance(error, asyncio.CancelledError):
            if task is not None and hasattr(task, "uncancel"):
                task.uncancel()
            raise self._loss
        try:
            await self.release()
        except HoldfastError:
            if error is None:
                raise


def _lock(make: Callable[Concatenate[_client.Client, P], _client.Lock]) -> Callable[Concatenate[Client, P], Lock]:
    def made(self: Client, /, *args: P.args, **named: P.kwargs) -> Lock:
        return Lock(make(self._sync, *args, **named))

    functools.update_wrapper(made, make)
    return made


class Client:
    """The client of holdfast_client, with the same arguments, for asyncio."""

    def __init__(
        self, nodes: Sequence[str], *, username: str = "", password: str = "",
        credentials: Optional[Callable[[], Tuple[str, str]]] = None, ssl: Optional[_ssl.SSLContext] = None, db: int = 0,
        ttl: float = 10, name: Optional[str] = None,
    ) -> None:
        self._sync = _client.Client(
            nodes, username=username, password=password, credentials=credentials, ssl=ssl, db=db, ttl=ttl, name=name,
        )

    lock = write_lock = _lock(_client.Client.lock)
    read_lock = _lock(_client.Client.read_lock)
    semaphore = _lock(_client.Client.semaphore)
    locks = _lock(_client.Client.locks)

    async def inspect(self, name: str) -> _client.Info:
        info: _client.Info = await _in_thread(self._sync.inspect, name)
        return info

    async def watch(self, name: str) -> AsyncIterator[_client.Info]:
        changes = self._sync.watch(name)
        end = object()
        while True:
            info = await _in_thread(next, changes, end)
            if info is end:
                return
            yield info

    async def fence_pass(self, key: str, fence: int) -> bool:
        return bool(await _in_thread(self._sync.fence_pass, key, fence))

    async def close(self) -> None:
        await _in_thread(self._sync.close)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
