"""The session of a client, and its locks."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import re
import secrets
import ssl as _ssl
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ._conn import Conn, Push
from ._errors import (
    ClosedError, ConnectionLost, HoldfastError, LockLost, NotAcquired, RefusedError, TransientError, is_reply,
)

_log = logging.getLogger("holdfast_client")
_log.addHandler(logging.NullHandler())

_FIRST_PAUSE, _MAX_PAUSE = 0.05, 1.0
_WAITING, _HELD, _LOST, _RELEASED = range(4)
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def _now() -> float:
    """Seconds by a clock that is never set, and that counts while the machine is suspended where it can."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


@dataclasses.dataclass(frozen=True)
class Party:
    """Who holds a lock or waits for it. since is Unix time by the clock of the cluster; fence is 0 of who waits."""

    owner: str
    note: str
    mode: str
    fence: int
    permits: int
    since: float
    client: str
    state: str
    addr: str
    name: str


@dataclasses.dataclass(frozen=True)
class Info:
    """A lock as everybody can see it; at most 1,000 holders and waiters are listed."""

    holders: Tuple[Party, ...] = ()
    waiters: Tuple[Party, ...] = ()
    holder_count: int = 0
    waiter_count: int = 0


class Lock:
    """A lock, as threading.Lock is one, that several programs share. It is made by Client.lock and its siblings.

    Each object excludes all others, also of the same thread. It is for one holder at a time.
    """

    def __init__(
        self, client: "Client", names: Sequence[str], words: List[Any], timeout: float, reentrant: bool = False,
    ) -> None:
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"names {names!r}: each is a str")
        self._client = client
        self._names = list(names)
        self._words = words
        self._timeout = timeout
        self._reentrant = reentrant
        self._count = 0  # how often it was acquired
        self._hold: Optional[_Hold] = None
        self._asking: Optional[_Hold] = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait in line for the lock, at most timeout seconds; -1: for ever. False: not granted in time. Without blocking,
        or with a timeout of 0, the lock is taken if nobody holds it or waits for it. Raises NotAcquired if no node could
        be used when last tried, which the error names."""
        if self._hold is not None:
            if not self._reentrant:
                raise HoldfastError(f"lock {self._names[0]!r} is held by this object already")
            self._count += 1
            return True
        hold = self._asking = _Hold(self._client, self._names, self._words)
        if not self._client._acquire(hold, blocking and timeout != 0, None if timeout < 0 else timeout):
            return False
        self._hold, self._count = hold, 1
        return True

    def cancel(self) -> None:
        """Have an acquire that waits in another thread return False. Its place in line is given up."""
        if self._asking is not None:
            with self._client._changed:
                self._asking.cancelled = True
                self._client._changed.notify_all()

    def release(self) -> None:
        """Release the lock. Raises LockLost if it was lost before: others may have held it meanwhile."""
        if self._hold is None:
            raise HoldfastError(f"lock {self._names[0]!r} is not held")
        self._count -= 1
        if self._count > 0 and self._hold.loss is None:
            return
        hold, self._hold = self._hold, None
        self._client._release(hold)

    def __enter__(self) -> "Lock":
        if not self.acquire(timeout=self._timeout):
            why = f"was not granted in {self._timeout:g} s"
            if self._asking is not None and self._asking.cancelled:
                why = "was not granted: the wait was cancelled"
            raise NotAcquired(f"lock {self._names[0]!r} {why}")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.release()
        except HoldfastError:
            if error is None:  # else that error is the one to see
                raise

    @property
    def fence(self) -> int:
        """The number of this hold, larger than that of every hold before. It goes with every write to a resource that
        refuses smaller ones; see also Client.fence_pass."""
        return self._held().fence

    @property
    def lost(self) -> Optional[LockLost]:
        """Why the lock is no longer held; None while it is."""
        hold = self._held()
        return hold.loss or hold.outlived()

    def check(self) -> None:
        """Raise LockLost if the lock is no longer held. It asks no node."""
        lost = self.lost
        if lost is not None:
            raise lost

    def on_lost(self, callback: Callable[[LockLost], object]) -> None:
        """Have callback called when the lock is lost, by a thread of the client; at once if it is lost already."""
        self._held().on_lost(callback)

    def _held(self) -> "_Hold":
        if self._hold is None:
            raise HoldfastError(f"lock {self._names[0]!r} is not held")
        return self._hold


class _Hold:
    """One grant of a lock, asked for or held. The client's condition guards it."""

    def __init__(self, client: "Client", names: List[str], words: List[Any]) -> None:
        self.client, self.names, self.words = client, names, words
        self.owner = f"{client._id}:{next(client._numbers)}"  # never the same: a repeated command concerns no other hold
        self.state = _WAITING
        self.fence = 0
        self.session = ""  # that the lock was asked for in last; "": never, or refused
        self.ask_again = False
        self.cancelled = False
        self.loss: Optional[LockLost] = None
        self.callbacks: List[Callable[[LockLost], object]] = []

    def acquire_words(self, session: str, blocking: bool) -> List[Any]:
        if len(self.names) == 1:
            words: List[Any] = ["LOCK.ACQUIRE", self.names[0]]
        else:
            words = ["LOCK.ACQUIREALL", len(self.names), *self.names]
        words += [self.owner, "SESSION", session, *self.words]
        return words + ["WAIT", 0, "NOTIFY"] if blocking else words

    def release_words(self) -> List[Any]:
        if len(self.names) == 1:
            return ["LOCK.RELEASE", self.names[0], self.owner, "ALL"]
        return ["LOCK.RELEASEALL", len(self.names), *self.names, self.owner]

    def grant(self, fence: int) -> None:
        """Note a grant; 0 is none. One in a session that was given up does not count."""
        if fence > 0 and self.state == _WAITING and self.session == self.client._session:
            self.fence, self.state = fence, _HELD
            self.client._changed.notify_all()

    def lose(self, reason: str, text: str = "", by: str = "", seconds_left: float = 0) -> None:
        if self.state not in (_HELD, _RELEASED) or self.loss is not None:
            return
        self.loss = LockLost(self.names[0], self.fence, reason, text, by, seconds_left)
        if self.state == _RELEASED:
            return
        self.state = _LOST
        self.client._holds.pop(self.owner, None)
        self.client._changed.notify_all()
        _start(_log.warning, "%s", self.loss)  # a handler may block, or use the client
        for callback in self.callbacks:
            _start(callback, self.loss)
        if len(self.names) > 1:
            _start(self.client._give_back, self)

    def on_lost(self, callback: Callable[[LockLost], object]) -> None:
        with self.client._changed:
            if self.loss is None:
                self.callbacks.append(callback)
                return
        callback(self.loss)

    def outlived(self) -> Optional[LockLost]:
        """The loss that the client's own threads have not seen yet, as they were frozen or this is the child of a
        fork."""
        client = self.client
        if client._pid != os.getpid():
            return LockLost(self.names[0], self.fence, "held by the parent of this process")
        if _now() < client._good_until - client._ttl / 3:
            return None
        left = max(0.0, client._good_until - _now())
        return LockLost(self.names[0], self.fence, "no node could be reached", seconds_left=left)

    def pushed(self, conn: Conn, kind: str, words: List[Any]) -> None:
        if kind == "granted" and words:
            self.grant(words[0])
        elif kind in ("timeout", "failed") and conn is self.client._conn and self.state == _WAITING:
            self.ask_again = True
            self.client._changed.notify_all()
        elif kind == "lost" and len(words) > 1 and words[0] == self.fence:
            text, by = (words[2], words[3]) if len(words) > 3 else ("", "")
            self.lose(words[1], text, by)


def _start(target: Callable[..., object], *args: Any) -> None:
    threading.Thread(target=target, args=args, name="holdfast", daemon=True).start()


class Client:
    """A client of native locks. It connects at the first use, and may be used by several threads.

    nodes are "host:port"; with several a client outlives the death of its node. credentials, if given, is asked for user
    and password at each connection. ttl is how many seconds locks stay held when this process dies or freezes, or no node
    can be reached: at least 1; below 5 it is hardly longer than the failover of a cluster. name is by which nodes and
    `holdfast locks` know the client.
    """

    def __init__(
        self, nodes: Sequence[str], *, username: str = "", password: str = "",
        credentials: Optional[Callable[[], Tuple[str, str]]] = None, ssl: Optional[_ssl.SSLContext] = None, db: int = 0,
        ttl: float = 10, name: Optional[str] = None,
    ) -> None:
        if isinstance(nodes, str) or not nodes:
            raise ValueError("nodes: a list of host:port")
        for node in nodes:
            if not isinstance(node, str) or not re.fullmatch(r"[^/]+:\d{1,5}", node):
                raise ValueError(f"nodes: {node!r} is not host:port")
            if not 1 <= int(node.rpartition(":")[2]) <= 65535:
                raise ValueError(f"nodes: {node!r} is not host:port with a port of 1 to 65535")
        if ssl is not None and not isinstance(ssl, _ssl.SSLContext):
            raise TypeError(f"ssl {ssl!r}: an ssl.SSLContext, as ssl.create_default_context() makes one")
        for word in (username, password):
            if not isinstance(word or "", str):
                raise TypeError("username and password: str")
        if ttl < 1:
            raise ValueError(f"ttl {ttl}: at least 1 s")
        self._nodes, self._tls, self._db, self._ttl = list(nodes), ssl, db, float(ttl)
        self._credentials = credentials or (lambda: (username, password))
        self._name = name or f"{os.path.basename(sys.argv[0]) or 'python'}:{os.getpid()}"
        self._patience = min(self._ttl / 5, 3.0)
        self._id = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._pid = os.getpid()
        # The condition guards what follows, and is notified at each change of it.
        self._changed = threading.Condition()
        self._running = False
        self._closed = False
        self._conn: Optional[Conn] = None  # that the session is attached to
        self._former: List[Conn] = []  # closed once the session is attached elsewhere: see _retire
        self._next = 0
        self._rounds = 0  # over all nodes that failed
        self._round_error: Optional[HoldfastError] = None
        self._refused = False  # the last round failed because a node refused the client
        self._session = ""
        self._good_until = 0.0  # the session cannot end before, unless a command ends it
        self._holds: Dict[str, _Hold] = {}
        self._watched: Dict[str, int] = {}  # how many watch a channel
        self._messages: Dict[str, int] = {}  # how many messages a watched channel has had
        self._observer: Optional[Client] = None  # watches for this client

    def lock(
        self, name: str, *, timeout: float = -1, note: str = "", delay: float = 0, reentrant: bool = False,
    ) -> Lock:
        """A lock that excludes all others. timeout is for how many seconds a with statement waits for it before it raises
        NotAcquired; -1: for ever. note is shown to everybody who looks, up to 1024 bytes; delay is for how many seconds
        nobody is granted the lock after it was lost. If reentrant, the object may be acquired again while it is held, and
        is released as often."""
        return Lock(self, [name], _options(note, delay), timeout, reentrant)

    def read_lock(self, name: str, *, timeout: float = -1, note: str = "", delay: float = 0) -> Lock:
        """A lock that is held together with other read locks, and excludes those of Client.lock."""
        return Lock(self, [name], ["SHARED", *_options(note, delay)], timeout)

    write_lock = lock

    def semaphore(
        self, name: str, limit: int, permits: int = 1, *, timeout: float = -1, note: str = "", delay: float = 0,
    ) -> Lock:
        """A lock that several hold until limit permits are taken. All programs have to say the same limit."""
        return Lock(self, [name], ["LIMIT", limit, "PERMITS", permits, *_options(note, delay)], timeout)

    def locks(self, names: Sequence[str], *, timeout: float = -1, note: str = "", delay: float = 0) -> Lock:
        """Up to 128 locks that are granted together, with one fence. The loss of one is the loss of all."""
        if isinstance(names, str) or not names:
            raise ValueError("names: a list of names")
        return Lock(self, names, _options(note, delay), timeout)

    def inspect(self, name: str) -> Info:
        """Who holds a lock and who waits for it."""
        found = self._do("LOCK.INFO", name)
        if found is None:
            return Info()
        return Info(
            tuple(map(_party, found["holders"])), tuple(map(_party, found["waiters"])), found["holders-count"],
            found["waiters-count"],
        )

    def watch(self, name: str) -> Iterator[Info]:
        """Who holds a lock and who waits for it: at once, and after each change. Quick changes may be seen as one. With a
        note each leader tells its address so."""
        return self._observing()._watch(name)

    def _observing(self) -> "Client":
        """The client that watches for this one. It has a connection of its own: a node without a leader closes
        connections with subscriptions, which would end the session of this client."""
        with self._changed:
            if self._closed:
                raise ClosedError("the client is closed")
            if self._observer is None:
                self._observer = Client(
                    self._nodes, credentials=self._credentials, ssl=self._tls, db=self._db, ttl=self._ttl, name=self._name,
                )
            return self._observer

    def _watch(self, name: str) -> Iterator[Info]:
        channel = f"__lock@{self._db}__:{name}"
        with self._changed:
            self._watched[channel] = self._watched.get(channel, 0) + 1
        try:
            self._exchange(lambda conn: conn.do("SUBSCRIBE", channel, subscribes=True))
            last = None
            while True:
                with self._changed:
                    seen = self._messages.get(channel, 0)
                info = self.inspect(name)
                if info != last:
                    last = info
                    yield info
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._messages.get(channel, 0) != seen)
        finally:
            with self._changed:
                self._watched[channel] -= 1

    def fence_pass(self, key: str, fence: int) -> bool:
        """Whether no larger fence has passed at key before: whether the holder with this fence may still write to the
        resource that key stands for. It is for resources that cannot compare fences themselves."""
        return bool(self._do("FENCE.PASS", key, fence) == 1)

    def close(self) -> None:
        """Release all locks by closing the session. If no node answers in a fifth of the TTL, they are free after the
        TTL."""
        if self._pid != os.getpid():
            return
        with self._changed:
            if self._closed:
                return
            self._closed = True
            conn, session, observer = self._conn, self._session, self._observer
            for hold in self._holds.values():
                if hold.state == _HELD:
                    hold.state, hold.loss = _LOST, LockLost(hold.names[0], hold.fence, "the client was closed")
            self._changed.notify_all()
        if observer is not None:
            observer.close()
        try:
            if conn is not None and session:
                conn.do("SESSION.CLOSE", session)
        except HoldfastError:
            pass
        finally:
            with self._changed:
                self._session = ""
                for former in [*self._former, *([conn] if conn else [])]:
                    former.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # The session.

    def _run(self) -> None:
        """Keep the session attached to some node until the client is closed."""
        pause = _FIRST_PAUSE
        while not self._closed:
            conn = self._connect()
            if conn is None:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, pause)
                pause = min(2 * pause, _MAX_PAUSE)
                continue
            pause = _FIRST_PAUSE
            self._keep(conn)
            with self._changed:
                self._retire(conn)
                self._conn = None
                self._changed.notify_all()

    def _expire(self) -> None:
        """Give up the session with a third of the TTL left, if no node could be reached in time to renew it."""
        with self._changed:
            while not self._closed:
                left = self._good_until - self._ttl / 3 - _now()
                if not self._session:
                    self._changed.wait()
                elif left > 0:
                    self._changed.wait(left)
                else:
                    reason = "no node could be reached"
                    if self._round_error is not None:
                        reason += f": {self._round_error}"
                    self._give_up_session(reason, max(0.0, self._good_until - _now()))

    def _give_up_session(self, reason: str, seconds_left: float = 0) -> None:
        self._session = ""
        for hold in list(self._holds.values()):
            hold.lose(reason, seconds_left=seconds_left)
        for conn in self._former:
            conn.close()
        self._former = []
        if self._conn is not None:
            self._conn.leave()
        self._changed.notify_all()

    def _end_session(self, session: str) -> None:
        with self._changed:
            if self._session == session:
                self._give_up_session("session")

    def _retire(self, conn: Conn) -> None:
        """Close a connection that is used no more, or once the session is attached to another if it may be attached to
        this one: a node ends the sessions of a connection that closes."""
        if self._session:
            self._former.append(conn)
        else:
            conn.close()

    def _connect(self) -> Optional[Conn]:
        """Try each node once, and attach the session to the first that answers."""
        failed: List[str] = []
        refused = False
        for _ in self._nodes:
            node = self._nodes[self._next % len(self._nodes)]
            self._next += 1
            try:
                conn = Conn(node, self._patience, self._tls, self._pushed)
            except RefusedError as e:
                failed.append(str(e))
                refused = True
                continue
            except Exception as e:  # a host's name that cannot be one is a ValueError
                failed.append(f"{node}: {e}")
                continue
            try:
                self._attach(conn)
            except Exception as e:  # also what the user's credentials raise
                failed.append(str(e) if isinstance(e, HoldfastError) else f"{node}: {e!r}")
                refused = refused or isinstance(e, RefusedError)
                with self._changed:
                    self._retire(conn)
                continue
            return conn
        text = "; ".join(failed)
        with self._changed:
            level = logging.DEBUG if self._round_error else logging.WARNING
            self._rounds += 1
            self._round_error, self._refused = ConnectionLost(text), refused
            self._changed.notify_all()
        _log.log(level, "no node can be used: %s", text)
        return None

    def _attach(self, conn: Conn) -> None:
        """Log in, attach the session or open one, and prove the locks that are held."""
        hello: List[Any] = ["HELLO", 3]
        user, password = self._credentials()
        if user or password:
            hello += ["AUTH", user or "default", password or ""]
        conn.do(*hello, "SETNAME", self._name)
        if self._db:
            conn.do("SELECT", self._db)
        session = self._open(conn)
        with self._changed:
            held = [hold for hold in self._holds.values() if hold.state == _HELD]
            watched = [channel for channel, count in self._watched.items() if count > 0]
        self._prove(conn, held)
        for channel in watched:
            conn.do("SUBSCRIBE", channel, subscribes=True)
        with self._changed:
            if self._session != session:
                raise ConnectionLost(f"{conn.node}: the session ended")
            for former in self._former:
                former.close()
            self._former, self._conn, self._round_error = [], conn, None
            for channel in watched:  # messages were missed
                self._messages[channel] = self._messages.get(channel, 0) + 1
            self._changed.notify_all()
        _log.debug("connected to %s", conn.node)

    def _open(self, conn: Conn) -> str:
        session = self._session
        if session:
            try:
                attached = conn.do("SESSION.ATTACH", session, "HEARTBEAT")
            except TransientError as e:
                if not is_reply(e, "NOSESSION"):
                    raise
                attached = None
            if attached is not None:
                self._keep_alive(conn, session)
                return session
            self._end_session(session)
        begun = _now()
        ttl = int(self._ttl * 1000)
        session = str(conn.do("SESSION.OPEN", "PX", ttl, "CONNECTION", "HEARTBEAT", "NAME", self._name))
        with self._changed:
            self._session, self._good_until = session, begun + self._ttl
            self._changed.notify_all()
        return session

    def _keep_alive(self, conn: Conn, session: str) -> None:
        begun = _now()
        try:
            left = conn.do("SESSION.KEEPALIVE", session)
        except TransientError as e:
            if not is_reply(e, "NOSESSION"):
                raise
            left = None
        if left is None:
            self._end_session(session)
            raise ConnectionLost(f"{conn.node}: the session ended")
        with self._changed:
            if self._session == session:
                self._good_until = begun + min(self._ttl, left / 1000)
                self._changed.notify_all()

    def _prove(self, conn: Conn, held: List[_Hold]) -> None:
        """Ask for each hold whether it is still held: the notice of its loss may have gone to a former connection."""
        asked = [(hold, name) for hold in held for name in hold.names]
        for start in range(0, len(asked), 128):
            batch = asked[start:start + 128]
            fences = conn.pipeline([["LOCK.CHECK", name, hold.owner] for hold, name in batch])
            with self._changed:
                for (hold, _), fence in zip(batch, fences):
                    if fence != hold.fence:
                        hold.lose("unknown")

    def _keep(self, conn: Conn) -> None:
        """Send signs of life until another node must be looked for."""
        while not conn.gone.wait(self._ttl / 4) and not self._closed:
            try:
                self._keep_alive(conn, self._session)
            except HoldfastError:
                return

    def _pushed(self, conn: Conn, push: Push) -> None:
        with self._changed:
            if len(push) >= 3 and push[0] == "message":
                if push[1] in self._watched:
                    self._messages[push[1]] = self._messages.get(push[1], 0) + 1
                    self._changed.notify_all()
            elif len(push) >= 4 and push[0] == "lock":
                hold = self._holds.get(push[3])
                if hold is not None and push[2] in hold.names:
                    hold.pushed(conn, push[1], push[4:])

    # Commands.

    def _await(
        self, end: Optional[float], once: bool = False, hold: Optional[_Hold] = None,
    ) -> Tuple[Conn, str]:
        """The connection that the session is attached to, and the session. It is waited for until end, or until hold is
        cancelled; if once, until a round over all nodes has failed. Raises TimeoutError at end if none has."""
        self._check_process()
        with self._changed:
            if not self._running and not self._closed:
                self._running = True
                _start(self._run)
                _start(self._expire)
            rounds = self._rounds
            while True:
                if self._closed:
                    raise ClosedError("the client is closed")
                if hold is not None and hold.cancelled:
                    raise NotAcquired("cancelled")
                if self._conn is not None and self._session:
                    return self._conn, self._session
                error = self._round_error
                if self._rounds > rounds and error is not None and (once or self._refused):
                    raise RefusedError("", str(error)) if self._refused else NotAcquired(f"no node can be used: {error}")
                if end is not None and _now() >= end:
                    raise NotAcquired(f"no node can be used: {error}") if error else TimeoutError()
                self._changed.wait(None if end is None else max(0.0, end - _now()))

    def _check_process(self) -> None:
        """Raise ClosedError in the child of a fork, where another thread of the parent may have left a lock locked."""
        if self._pid != os.getpid():
            raise ClosedError("the client was made before a fork; make one in the child")

    def _do(self, *words: Any) -> Any:
        return self._exchange(lambda conn: conn.do(*words))

    def _exchange(self, do: Callable[[Conn], Any], end: Optional[float] = None) -> Any:
        """Call do with the client's connection until that succeeds or cannot succeed."""
        while True:
            conn, _ = self._await(end)
            try:
                return do(conn)
            except (ConnectionLost, TransientError) as e:
                self._before_retry(conn, e)

    def _before_retry(self, conn: Conn, error: HoldfastError) -> None:
        """Wait until another try may succeed."""
        lost = isinstance(error, ConnectionLost)
        if is_reply(error, "CLUSTERDOWN", "LOADING", "MASTERDOWN"):
            conn.leave()
            lost = True
        with self._changed:
            if lost:
                self._changed.wait_for(lambda: self._closed or self._conn is not conn, self._ttl)
            if isinstance(error, TransientError):
                self._changed.wait_for(lambda: self._closed, _FIRST_PAUSE)

    def _acquire(self, hold: _Hold, blocking: bool, timeout: Optional[float]) -> bool:
        self._check_process()
        end = None if timeout is None or not blocking else _now() + timeout
        with self._changed:
            self._holds[hold.owner] = hold
        granted = False
        try:
            granted = self._ask(hold, blocking, end)
        except TimeoutError:
            pass
        except NotAcquired:
            if not hold.cancelled:
                raise
        finally:
            if not granted:
                with self._changed:
                    hold.state = _RELEASED
                    self._holds.pop(hold.owner, None)
                if hold.session and not self._closed:
                    _start(self._give_back, hold)
        return granted

    def _ask(self, hold: _Hold, blocking: bool, end: Optional[float]) -> bool:
        def granted(fence: Any) -> None:
            with self._changed:
                hold.grant(fence or 0)

        while True:
            conn, session = self._await(end, not blocking, hold)
            with self._changed:
                hold.session, hold.ask_again = session, False
            try:
                reply = conn.do(*hold.acquire_words(session, blocking), then=granted)
            except (ConnectionLost, TransientError) as e:
                if is_reply(e, "NOSESSION"):
                    self._end_session(session)
                self._before_retry(conn, e)
                continue
            except RefusedError:
                hold.session = ""
                raise
            if reply is None:
                hold.session = ""
                return False
            with self._changed:
                while hold.state == _WAITING and not hold.ask_again and self._conn is conn and not conn.gone.is_set():
                    if hold.cancelled or end is not None and _now() >= end:
                        return False
                    self._changed.wait(None if end is None else max(0.0, end - _now()))
                if hold.state != _WAITING:
                    return not hold.cancelled
                self._changed.wait_for(lambda: self._closed or self._conn is not conn or hold.ask_again, self._ttl)

    def _give_back(self, hold: _Hold) -> None:
        """Tell the cluster that nobody wants the lock any more, unless the session has ended, and the lock with it."""
        while True:
            try:
                conn, session = self._await(None)
                if session != hold.session:
                    return
                conn.do("LOCK.CANCEL", hold.names[0], hold.owner)
                conn.do(*hold.release_words())
                return
            except (ConnectionLost, TransientError) as e:
                self._before_retry(conn, e)
            except ClosedError:
                return
            except RefusedError:
                if self._conn is not None:
                    return

    def _release(self, hold: _Hold) -> None:
        outlived = hold.outlived()
        if self._pid != os.getpid() and outlived is not None:
            raise outlived
        with self._changed:
            if hold.loss is not None:
                raise hold.loss
            hold.state = _RELEASED
        again = False
        try:
            while True:
                conn, session = self._await(None)
                ended: Any = None
                if session == hold.session:
                    try:
                        ended = conn.do(*hold.release_words())
                    except (ConnectionLost, TransientError) as e:
                        again = True
                        self._before_retry(conn, e)
                        continue
                lost = ended is None or len(hold.names) > 1 and ended < len(hold.names)
                if lost and not again:  # else the reply to the first try was lost
                    raise hold.loss or LockLost(hold.names[0], hold.fence, "unknown")
                return
        finally:
            with self._changed:
                self._holds.pop(hold.owner, None)


def _options(note: str, delay: float) -> List[Any]:
    words: List[Any] = ["NOTE", note] if note else []
    return words + ["DELAY", int(delay * 1000)] if delay else words


def _party(found: Dict[str, Any]) -> Party:
    return Party(
        found["owner"], found["note"], found["mode"], found.get("fence", 0), found["permits"], found["since"] / 1000,
        found["client"], found.get("client-state", ""), found.get("client-addr", ""), found.get("client-name", ""),
    )
