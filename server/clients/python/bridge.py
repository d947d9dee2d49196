"""Takes a lock by redis-py on all servers that it is given: see ../bridge.sh.

With "fences" in front it checks the fences of the release that locks on both, and of the one after.
"""

import contextlib
import sys

import redis


@contextlib.contextmanager
def locked(servers, name):
    """The lock on all servers, in this order: Redis first. LockError: one of them refused, and none is held."""
    with contextlib.ExitStack() as held:
        for server in servers:
            held.enter_context(server.lock(name, timeout=30, blocking_timeout=0.1))
        yield


def fence(old, holdfast, name):
    """A fencing token while the lock is held on both; Holdfast's counter follows, and leads once others use it alone."""
    token = old.incr(name)
    return token if holdfast.execute_command("FENCE.PASS", name, token) else holdfast.incr(name)


def fences(old, holdfast):
    old.set("fence:job", 41)
    given = [fence(old, holdfast, "fence:job") for _ in range(3)]
    given += [holdfast.incr("fence:job") for _ in range(5)]  # the release after it
    given += [fence(old, holdfast, "fence:job"), holdfast.incr("fence:job"), fence(old, holdfast, "fence:job")]
    assert given == sorted(set(given)) and given[0] == 42, given
    old.delete("fence:job")
    holdfast.delete("fence:job")
    print("fences grow:", *given)


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
