"""Takes a lock by redis-py on all servers that it is given: see ../bridge.sh.

With "fences" in front it checks the fences of the release that locks on both, and of the one after.
"""

import contextlib
import sys
from random import Random

import redis


# <locked>
@contextlib.contextmanager
def locked(servers, name):
    """The lock on all servers, in this order: Redis first. LockError: one of them refused, and none is held."""
    with contextlib.ExitStack() as held:
        for server in servers:
            held.enter_context(server.lock(name, timeout=30, blocking_timeout=0.1))
        yield
# </locked>


# <fence>
def fence(old, holdfast, name):
    """A fencing token while the lock is held on both: above all that either side gave out. Holdfast's counter follows."""
    token, here = old.incr(name), holdfast.incr(name)
    holdfast.execute_command("FENCE.PASS", name, token)
    return max(token, here)
# </fence>


def fences(old, holdfast):
    """Over the bridge and back, holders in any order: fences only grow. On the way back the counter is copied."""
    key = "fence:job"
    given, random = [41], Random(1)
    for other in (old, holdfast, old):  # the release that runs beside the bridge
        old.set(key, given[-1])
        for left in reversed(range(100)):
            bridge = left == 0 or random.random() < 0.6
            given.append(fence(old, holdfast, key) if bridge else other.incr(key))
            assert given[-1] > given[-2], given
    old.delete(key)
    holdfast.delete(key)
    print("fences grow:", len(given) - 1)


def main(servers):
    if servers[0] == "fences":
        fences(*(redis.Redis.from_url(f"redis://{s}") for s in servers[1:]))
        return
    try:
        with locked([redis.Redis.from_url(f"redis://{s}") for s in servers], "job"):
            print("held", flush=True)
            sys.stdin.readline()
    except redis.exceptions.LockError:
        print("refused")
        return
    print("released")


main(sys.argv[1:])
