"""Errors of this package. Their texts name the node and its words."""

from __future__ import annotations

from typing import Optional


class HoldfastError(Exception):
    """What every error of this package is."""


class ClosedError(HoldfastError):
    """The client was closed, or was made before a fork of which this process is the child."""


class RefusedError(HoldfastError):
    """A node's reply that another try would meet again: of rights, passwords, certificates or values."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(f"{node}: {text}" if node else text)
        self.node = node
        self.text = text


class NotAcquired(HoldfastError):
    """The lock was not granted: no node could be used in time, or the timeout of a with statement passed."""


class LockLost(HoldfastError):
    """The lock is no longer held, or can soon no longer be proved to be.

    reason is broken, expired, session or flushed as server/LOCKS.md defines them, unknown, or a sentence. by is the name
    and address of the client that broke the lock, and text the reason that it gave; either may be empty. seconds_left is
    for how long nobody else is granted the lock, if no node could be asked; 0: somebody else may hold it now.
    """

    def __init__(self, name: str, fence: int, reason: str, text: str = "", by: str = "", seconds_left: float = 0) -> None:
        message = f"lock {name!r} lost, fence {fence}: {reason}"
        if by:
            message += f" by {by}"
        if text:
            message += f": {text}"
        super().__init__(message)
        self.name = name
        self.fence = fence
        self.reason = reason
        self.text = text
        self.by = by
        self.seconds_left = seconds_left


class ConnectionLost(HoldfastError):
    """The connection ended, or the node did not answer in time. The command may have been executed."""


class TransientError(HoldfastError):
    """An error reply that another node or another moment may not give."""

    def __init__(self, node: str, text: str) -> None:
        super().__init__(f"{node}: {text}")
        self.text = text


_TRANSIENT = (
    "CLUSTERDOWN", "TRYAGAIN", "UNCERTAIN", "LOADING", "MASTERDOWN", "NOSESSION", "ERR max number of clients",
)


def error_of(node: str, text: str) -> HoldfastError:
    if text.startswith(_TRANSIENT):
        return TransientError(node, text)
    return RefusedError(node, text)


def is_reply(error: Optional[BaseException], *kinds: str) -> bool:
    return isinstance(error, TransientError) and error.text.startswith(kinds)
