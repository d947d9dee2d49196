"""Native locks of Holdfast: a fair queue without polling, a fencing token with every grant, and notice of loss.

    import holdfast_client

    client = holdfast_client.Client(["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"])
    with client.lock("nightly") as held:
        held.check()                 # raises LockLost once the lock is lost
        write(row, fence=held.fence)

A client has one session for all its locks, which outlives the node that it is connected to. The locks of a process that
dies or freezes are free after the TTL.
"""

from . import aio
from ._client import Client, Info, Lock, Party
from ._errors import ClosedError, HoldfastError, LockLost, NotAcquired, RefusedError

__all__ = ["aio", "Client", "ClosedError", "HoldfastError", "Info", "Lock", "LockLost", "NotAcquired", "Party", "RefusedError"]
