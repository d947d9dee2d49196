"""Native locks by redis-py: the recipe, and checks of it against three nodes.

Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the
leader and prints the address it had.
"""

import os
import subprocess
import sys
import threading
import time
import traceback
import uuid

import redis

NODES = [(h, int(p)) for h, p in (n.split(":") for n in os.environ["HOLDFAST_NODES"].split(","))]


# The recipe begins.
class Lock:
    """A native lock that ends with its connection: with this process, too."""

    SLICE = 2000  # ms of one wait; shorter than the socket's time-out

    def __init__(self, node, name, note="", lease=10_000):
        host, port = node
        self.name, self.owner, self.note, self.lost = name, str(uuid.uuid4()), note, None
        self.redis = redis.Redis(host, port, single_connection_client=True, protocol=3, decode_responses=True, socket_timeout=5)
        self.session = self.redis.execute_command("SESSION.OPEN", "PX", lease, "CONNECTION")
        self.redis.connection._parser.set_pubsub_push_handler(self._told)

    def _told(self, push):  # ["lock", "lost", name, owner, fence, reason]
        if push[:4] == ["lock", "lost", self.name, self.owner]:
            self.lost = push[5]

    def acquire(self, wait):
        """Stand in line for so many seconds; the fence, or None. Asking again keeps the place."""
        until = time.monotonic() + wait
        while True:
            left = max(1, min(self.SLICE, int((until - time.monotonic()) * 1000)))
            fence = self.redis.execute_command("LOCK.ACQUIRE", self.name, self.owner, "SESSION", self.session, "WAIT", left, "NOTE", self.note)
            if fence is not None or time.monotonic() >= until:
                return fence

    def held(self):
        """Ask whether the lock is still held; a loss is told at the latest then."""
        return self.redis.execute_command("LOCK.CHECK", self.name, self.owner) is not None

    def release(self):
        return self.redis.execute_command("LOCK.RELEASE", self.name, self.owner) is not None

    def close(self):
        self.redis.close()


def write(client, resource, fence):
    """Whether the holder with this fence may still write to the resource."""
    return client.execute_command("FENCE.PASS", resource, fence) == 1


# The recipe ends.
def client(node):
    return redis.Redis(*node, protocol=3, decode_responses=True)


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"found {found!r}, expected {wanted!r}")


def within(seconds, run):
    deadline = time.monotonic() + seconds
    while True:
        try:
            if run():
                return
        except (redis.RedisError, OSError):
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.05)


def waiting():
    """One after the other, over two nodes; the fence grows, and an older one does not pass."""
    first, second = Lock(NODES[0], "py:job"), Lock(NODES[1], "py:job")
    old = first.acquire(10)
    got = []
    waiter = threading.Thread(target=lambda: got.append(second.acquire(20)))
    waiter.start()
    within(10, lambda: client(NODES[2]).execute_command("LOCK.INFO", "py:job")["waiters-count"] == 1)
    expect(first.release(), True)
    waiter.join()
    assert got[0] > old, (got, old)
    expect(write(client(NODES[2]), "py:resource", got[0]), True)
    expect(write(client(NODES[1]), "py:resource", old), False)
    third = Lock(NODES[2], "py:job")
    expect(third.acquire(0.2), None)
    second.close()  # its session ends, and with it the hold
    assert third.acquire(10) > got[0]
    for lock in (first, third):
        lock.close()


def leases():
    """A lease instead of a session is renewed, by its owner alone."""
    c = client(NODES[0])
    fence = c.execute_command("LOCK.ACQUIRE", "py:lease", "me", "PX", 10_000)
    expect(client(NODES[1]).execute_command("LOCK.RENEW", "py:lease", "me", "PX", 60_000), fence)
    expect(client(NODES[2]).execute_command("LOCK.RENEW", "py:lease", "you", "PX", 60_000), None)
    assert c.pttl("py:lease") > 30_000
    expect(c.execute_command("LOCK.RELEASE", "py:lease", "me"), 0)


def losses():
    """By push on the holder's connection, and on the lock's channel."""
    channel = client(NODES[1]).pubsub()
    channel.subscribe("__lock@0__:py:lost")
    lock = Lock(NODES[0], "py:lost")
    fence = lock.acquire(10)
    expect(client(NODES[2]).execute_command("LOCK.BREAK", "py:lost", "REASON", "a test"), 1)
    within(10, lambda: not lock.held() and lock.lost == "broken")
    told = []

    def listen():
        m = channel.get_message(timeout=0.1)
        if m and m["type"] == "message":
            told.append(m["data"])
        return f"lost {lock.owner} {fence} broken" in told

    within(10, listen)
    lock.close()


def election():
    """The leader is who has the lock; its NOTE is where it can be found."""
    leader, candidate = Lock(NODES[0], "py:leader", note="10.0.0.1:80"), Lock(NODES[1], "py:leader", note="10.0.0.2:80")
    leader.acquire(10)

    def note():
        return client(NODES[2]).execute_command("LOCK.INFO", "py:leader")["holders"][0]["note"]

    expect(note(), "10.0.0.1:80")
    campaign = threading.Thread(target=lambda: candidate.acquire(20))
    campaign.start()
    leader.close()
    campaign.join()
    expect(note(), "10.0.0.2:80")
    candidate.close()


def kill():
    """The leader dies: the hold outlives it, with its fence; its session is attached elsewhere."""
    dead = os.environ["HOLDFAST_KILL"].split()
    held = {node: client(node).execute_command("LOCK.ACQUIRE", f"py:kill:{node[1]}", "me", "PX", 120_000) for node in NODES}
    sessions = {node: Lock(node, f"py:session:{node[1]}", lease=30_000) for node in NODES}
    fences = {node: lock.acquire(10) for node, lock in sessions.items()}
    host, port = subprocess.run(dead, capture_output=True, text=True, check=True).stdout.strip().split(":")
    gone = (host, int(port))
    for node in NODES:
        if node == gone:
            continue
        for other, fence in held.items():
            within(20, lambda: client(node).execute_command("LOCK.CHECK", f"py:kill:{other[1]}", "me") == fence)
        if node != gone:
            expect(sessions[node].held(), True)
    alive = client(next(n for n in NODES if n != gone))
    expect(alive.execute_command("SESSION.ATTACH", sessions[gone].session), 1)
    expect(alive.execute_command("LOCK.CHECK", f"py:session:{gone[1]}", sessions[gone].owner), fences[gone])


def main():
    failures = 0
    for check in (waiting, leases, losses, election, kill):
        try:
            check()
            print(f"  ok    redis-py: {check.__name__}", flush=True)
        except Exception:
            failures += 1
            print(f"  FAIL  redis-py: {check.__name__}\n{traceback.format_exc()}", flush=True)
    sys.exit(failures > 0)


main()
