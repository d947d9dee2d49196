"""A RESP3 connection to one node, shared by the threads of a client."""

from __future__ import annotations

import collections
import io
import select
import socket
import ssl
import threading
import time
from typing import Any, BinaryIO, Callable, Deque, List, Optional, Sequence

from ._errors import ConnectionLost, HoldfastError, RefusedError, error_of

_MAX_DEPTH, _MAX_ELEMENTS, _MAX_TEXT = 8, 1 << 16, 1 << 20


class Push(List[Any]):
    """What a node sends without being asked."""


class ErrorReply(str):
    """The text of an error reply."""


def read_value(stream: BinaryIO, depth: int = 0) -> Any:
    """Read a value: str, int, None, list, ErrorReply or Push. A map is a dict."""
    line = stream.readline(1 << 16)
    if not line:
        raise ConnectionError("closed by the node")
    if len(line) < 3 or not line.endswith(b"\r\n") or depth > _MAX_DEPTH:
        raise ValueError("the node's reply is not RESP3")
    kind, rest = line[:1], line[1:-2]
    if kind in b"+,#(":
        return rest.decode("utf-8", "surrogateescape")
    if kind == b"-":
        return ErrorReply(rest.decode("utf-8", "surrogateescape"))
    if kind == b":":
        return int(rest)
    if kind == b"_":
        return None
    size = int(rest)
    if size < 0:
        return None
    if kind in b"$!=":
        if size > _MAX_TEXT:
            raise ValueError("the node's reply is too long")
        data = stream.read(size + 2)
        if len(data) != size + 2:
            raise ConnectionError("closed by the node")
        text = data[:-2].decode("utf-8", "surrogateescape")
        return ErrorReply(text) if kind == b"!" else text
    if size > _MAX_ELEMENTS:
        raise ValueError("the node's reply is too long")
    if kind in b"*~":
        return [read_value(stream, depth + 1) for _ in range(size)]
    if kind == b">":
        return Push(read_value(stream, depth + 1) for _ in range(size))
    if kind == b"%":
        return {read_value(stream, depth + 1): read_value(stream, depth + 1) for _ in range(size)}
    raise ValueError("the node's reply is not RESP3")


def encode(words: Sequence[Any]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def _wait(sock: socket.socket, write: bool, seconds: Optional[float] = None) -> bool:
    """Wait until the socket can be written or read. False: it could not in so many seconds."""
    if not hasattr(select, "poll"):
        return any(select.select([] if write else [sock], [sock] if write else [], [], seconds))
    poll = select.poll()
    poll.register(sock, select.POLLOUT if write else select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


class _Stream(io.RawIOBase):
    """A socket that one thread reads and others write. Their calls take turns: TLS needs that."""

    def __init__(self, sock: socket.socket, patience: float) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._patience = patience
        self._turn = threading.Lock()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            write = False
            try:
                with self._turn:
                    return self._socket.recv_into(buffer)
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            except ssl.SSLWantWriteError:
                write = True
            _wait(self._socket, write)

    def send(self, data: bytes) -> None:
        end = time.monotonic() + self._patience
        view = memoryview(data)
        while view:
            write = True
            try:
                with self._turn:
                    view = view[self._socket.send(view):]
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass
            except ssl.SSLWantReadError:
                write = False
            left = end - time.monotonic()
            if left <= 0 or not _wait(self._socket, write, left):
                raise TimeoutError("the node does not read")


class _Request:
    def __init__(self, subscribes: bool, then: Optional[Callable[[Any], None]]) -> None:
        self.subscribes = subscribes  # the reply comes as a push
        self.then = then
        self.done = threading.Event()
        self.value: Any = None
        self.error: Optional[HoldfastError] = None

    def is_answered_by(self, value: Any) -> bool:
        if not isinstance(value, Push):
            return True
        return self.subscribes and bool(value) and value[0] in ("subscribe", "unsubscribe")


class Conn:
    """One connection. Replies come in the order of the commands, pushes between them."""

    def __init__(
        self, node: str, patience: float, tls: Optional[ssl.SSLContext], on_push: Callable[["Conn", Push], None],
    ) -> None:
        self.node = node
        self.gone = threading.Event()  # the connection has ended, or another node is looked for
        self._patience = patience
        self._on_push = on_push
        self._mutex = threading.Lock()  # also orders writes, so that pending has their order
        self._pending: Deque[_Request] = collections.deque()
        self._error: Optional[HoldfastError] = None
        host, _, port = node.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=patience)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host.strip("[]"))
        except ssl.SSLCertVerificationError as e:
            self._socket.close()
            raise RefusedError(node, str(e)) from e
        except BaseException:
            self._socket.close()
            raise
        self._out = _Stream(self._socket, patience)
        self._stream = io.BufferedReader(self._out)
        threading.Thread(target=self._read, name=f"holdfast {node}", daemon=True).start()

    def close(self) -> None:
        self.gone.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def leave(self) -> None:
        """Have the client look for another node. The connection stays open: see Client._retire."""
        self.gone.set()

    def _read(self) -> None:
        why: object
        answered = False
        try:
            while True:
                value = read_value(self._stream)
                answered = True
                with self._mutex:
                    request = None
                    if self._pending and self._pending[0].is_answered_by(value):
                        request = self._pending.popleft()
                if request is not None:
                    self._finish(request, value)
                elif isinstance(value, Push):
                    self._on_push(self, value)
                else:
                    raise ValueError("a reply that nobody asked for")
        except ConnectionError as e:
            is_plain = not isinstance(self._socket, ssl.SSLSocket)
            why = f"{e} before an answer: does the port want TLS?" if is_plain and not answered else e
        except (OSError, ValueError) as e:
            why = e
        self._stream.close()
        self._socket.close()
        with self._mutex:
            self._error = ConnectionLost(f"{self.node}: connection lost: {why}")
            pending, self._pending = self._pending, collections.deque()
        self.gone.set()
        for request in pending:
            request.error = self._error
            request.done.set()

    def _finish(self, request: _Request, value: Any) -> None:
        if isinstance(value, ErrorReply):
            request.error = error_of(self.node, value)
        else:
            request.value = value
            if request.then is not None:
                request.then(value)
        request.done.set()

    def do(self, *words: Any, then: Optional[Callable[[Any], None]] = None, subscribes: bool = False) -> Any:
        """Send a command and wait for the reply. then is called with it by the thread that reads, before that reads
        what follows: so a grant is noted before the push that says that it is lost."""
        request = self._send(words, then, subscribes)
        if not request.done.wait(self._patience):
            self.leave()
            raise ConnectionLost(f"{self.node}: no answer in {self._patience:g} s")
        if request.error is not None:
            raise request.error
        return request.value

    def pipeline(self, commands: List[List[Any]]) -> List[Any]:
        """Send commands at once and wait for all replies."""
        requests = [self._send(words, None, False) for words in commands]
        values = []
        for request in requests:
            if not request.done.wait(self._patience):
                self.leave()
                raise ConnectionLost(f"{self.node}: no answer in {self._patience:g} s")
            if request.error is not None:
                raise request.error
            values.append(request.value)
        return values

    def _send(self, words: Sequence[Any], then: Optional[Callable[[Any], None]], subscribes: bool) -> _Request:
        request = _Request(subscribes, then)
        with self._mutex:
            if self._error is not None:
                raise self._error
            self._pending.append(request)
            try:
                self._out.send(encode(words))
            except OSError:
                self.close()  # the thread that reads gives the error
        return request
