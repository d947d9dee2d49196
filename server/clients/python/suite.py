"""Stock Python clients and lock libraries against three nodes of Holdfast.

Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the
leader and prints the address it had.
"""

import asyncio
import importlib.metadata
import os
import subprocess
import sys
import threading
import time
import traceback

import pottery
import redis
import redis.asyncio
import redlock

NODES = [(h, int(p)) for h, p in (n.split(":") for n in os.environ["HOLDFAST_NODES"].split(","))]
RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
EXTEND = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"
LONG = 120_000  # TTL of what is held over the kill, in milliseconds
SOON = 5  # seconds within which a lock can be taken after the kill

failures = 0


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"found {found!r}, expected {wanted!r}")


def case(name, run, *args):
    global failures
    try:
        run(*args)
        print(f"  ok    {name}", flush=True)
    except Exception:
        failures += 1
        print(f"  FAIL  {name}\n{traceback.format_exc()}", flush=True)


def raises(kind, text, run, *args):
    try:
        found = run(*args)
    except kind as e:
        assert text in str(e), f"{e!r} does not say {text!r}"
        return
    raise AssertionError(f"found {found!r}, expected {kind.__name__} {text!r}")


def within(seconds, run):
    """Repeat run until it returns something true; errors count as not yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if run():
                return
            failure = "it returned false"
        except (redis.RedisError, redlock.MultipleRedlockException, pottery.PotteryError) as e:
            failure = repr(e)
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {failure}")
        time.sleep(0.05)


def client(node, **options):
    return redis.Redis(host=node[0], port=node[1], decode_responses=True, socket_timeout=5, **options)


def commands(name, node, other, options):
    c, o = client(node, **options), client(other, **options)
    key = f"py:{name}:{node[1]}"
    c.delete(key)
    expect(c.set(key, "a", nx=True, px=30000), True)
    expect(o.set(key, "b", nx=True, px=30000), None)
    assert 0 < o.pttl(key) <= 30000
    expect(c.eval(RELEASE, 1, key, "b"), 0)
    expect(o.register_script(EXTEND)(keys=[key], args=["a", LONG]), 1)
    assert 30000 < c.pttl(key) <= LONG
    expect(c.set(key, "a", xx=True, keepttl=True, get=True), "a")
    expect(c.evalsha(o.script_load(RELEASE), 1, key, "a"), 1)
    expect(o.get(key), None)
    fence = c.incr("py:fence")
    assert o.incr("py:fence") > fence
    pipe = c.pipeline(transaction=False)
    for _ in range(1000):
        pipe.incr(key)
    expect(pipe.execute(), list(range(1, 1001)))
    raises(redis.ResponseError, "unknown command", c.execute_command, "NOSUCH", "x")
    raises(redis.ResponseError, "wrong number of arguments", c.execute_command, "GET")
    c.set(key, "text")
    raises(redis.ResponseError, "not an integer", c.incr, key)
    raises(redis.exceptions.NoScriptError, "", c.evalsha, "0" * 40, 0)
    nine = client(node, db=9, **options)
    expect(nine.get(key), None)
    nine.set(key, "nine", px=30000)
    expect(c.get(key), "text")
    expect(list(nine.scan_iter(match=key)), [key])
    nine.delete(key)
    c.delete(key)
    assert c.info()["loading"] == 0 and c.client_id() > 0


def transactions(name, node, other, options):
    c, o = client(node, **options), client(other, **options)
    key = f"py:tx:{name}:{node[1]}"
    c.set(key, "1")
    with c.pipeline() as p:
        p.watch(key)
        p.multi()
        p.incr(key)
        p.get(key)
        expect(p.execute(), [2, "2"])
        p.watch(key)
        o.set(key, "5")
        p.multi()
        p.set(key, "lost")
        raises(redis.WatchError, "", p.execute)
        p.multi()
        p.set(key, "text")
        p.incr(key)
        p.set(key, "after")
        replies = p.execute(raise_on_error=False)
        assert isinstance(replies[1], redis.ResponseError) and replies[2] is True, replies
    expect(o.getdel(key), "after")


class PyLock:
    """redis-py's Lock."""

    def __init__(self, node, name):
        self.lock = client(node).lock(name, timeout=LONG / 1000, blocking=False)

    def acquire(self):
        return self.lock.acquire()

    def extend(self):
        return self.lock.extend(LONG / 1000, replace_ttl=True)

    def release(self):
        if self.lock.local.token is None:
            self.lock.local.token = b"stranger"
        try:
            self.lock.release()
            return True
        except redis.exceptions.LockNotOwnedError:
            return False


class Pottery:
    """pottery's Redlock with the cluster as its one master."""

    def __init__(self, node, name):
        master = redis.Redis(host=node[0], port=node[1], socket_timeout=5)
        self.lock = pottery.Redlock(
            key=name, masters={master}, auto_release_time=LONG / 1000, num_extensions=9, context_manager_blocking=False
        )

    def acquire(self):
        return self.lock.acquire(blocking=False)

    def extend(self):
        self.lock.extend()
        return self.lock.locked() > 0

    def release(self):
        try:
            self.lock.release()
            return True
        except pottery.ReleaseUnlockedLock:
            return False


class RedlockPy:
    """redlock-py, which has no extend and does not say whether it released."""

    def __init__(self, node, name):
        self.name, self.held = name, None
        self.client = client(node)
        self.manager = redlock.Redlock([{"host": node[0], "port": node[1], "socket_timeout": 5}], retry_count=1)

    def acquire(self):
        held = self.manager.lock(self.name, LONG)
        self.held = held or self.held
        return bool(held)

    def extend(self):
        return True

    def release(self):
        before = self.client.exists(self.name)
        self.manager.unlock(self.held or redlock.Lock(LONG, self.name, "stranger"))
        return before > self.client.exists(self.name)


LIBRARIES = {"redis-py Lock": PyLock, "pottery Redlock": Pottery, "redlock-py": RedlockPy}
PROTOCOLS = {"default": {}, "RESP3": {"protocol": 3}, "RESP2": {"protocol": 2}}


def round_trip(library, node, other, name):
    holder, stranger = library(node, name), library(other, name)
    expect(holder.acquire(), True)
    expect(bool(stranger.acquire()), False)
    expect(stranger.release(), False)
    expect(holder.extend(), True)
    expect(holder.release(), True)
    expect(stranger.acquire(), True)
    expect(stranger.release(), True)


def still_held(library, held, dead, name):
    """Every lock taken before the kill is held; those whose connection survived can go on."""
    alive = [n for n in NODES if n != dead]
    for node, lock in held.items():
        for other in alive:
            within(SOON, lambda: client(other).exists(f"{name}:{node[1]}") or client(other).exists(f"redlock:{name}:{node[1]}"))
            expect(bool(library(other, f"{name}:{node[1]}").acquire()), False)
        if node != dead:
            expect(lock.extend(), True)
            expect(lock.release(), True)
    for node in alive:
        fresh = library(node, f"{name}:{node[1]}")
        within(SOON, fresh.acquire)
        expect(fresh.release(), True)


async def asynchronous(node, other):
    c = redis.asyncio.Redis(host=node[0], port=node[1], socket_timeout=5)
    o = redis.asyncio.Redis(host=other[0], port=other[1], socket_timeout=5)
    try:
        name = f"py:async:{node[1]}"
        lock, second = c.lock(name, timeout=30, blocking=False), o.lock(name, timeout=30, blocking=False)
        expect(await lock.acquire(), True)
        expect(await second.acquire(), False)
        expect(await lock.extend(30), True)
        await lock.release()
        many = await asyncio.gather(*(o.incr("py:async:fence") for _ in range(50)))
        expect(len(set(many)), 50)
    finally:
        await c.aclose()
        await o.aclose()


def mutual_exclusion(library):
    """Eight threads on three nodes count with a read and a write under the lock."""
    client(NODES[0]).set("py:counter", 0)

    def work(node):
        c = client(node)
        for _ in range(5):
            with c.lock("py:mutex", timeout=30, sleep=0.005):
                c.set("py:counter", int(c.get("py:counter")) + 1)

    threads = [threading.Thread(target=work, args=(NODES[i % len(NODES)],)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expect(client(NODES[0]).get("py:counter"), "40")


def main():
    for package in ("redis", "pottery", "redlock-py"):
        print(f"  {package} {importlib.metadata.version(package)}")
    pairs = list(zip(NODES, NODES[1:] + NODES[:1]))
    for node, other in pairs:
        for name, options in PROTOCOLS.items():
            case(f"redis-py {name} on {node[1]}", commands, name, node, other, options)
            case(f"redis-py {name} transactions on {node[1]}", transactions, name, node, other, options)
        for name, library in LIBRARIES.items():
            case(f"{name} on {node[1]}", round_trip, library, node, other, f"py:{name}:lock:{node[1]}")
        case(f"redis-py asyncio on {node[1]}", lambda a, b: asyncio.run(asynchronous(a, b)), node, other)
    case("redis-py Lock: eight threads exclude each other", mutual_exclusion, PyLock)
    held = {n: {node: lib(node, f"py:{n}:held:{node[1]}") for node in NODES} for n, lib in LIBRARIES.items()}
    for name, locks in held.items():
        for node, lock in locks.items():
            case(f"{name} takes a lock on {node[1]} to hold over the kill", lambda: expect(lock.acquire(), True))
    fence = client(NODES[0]).incr("py:fence")
    dead = subprocess.check_output(os.environ["HOLDFAST_KILL"], shell=True, text=True).strip()
    host, port = dead.split(":")
    dead = (host, int(port))
    alive = [n for n in NODES if n != dead]
    started = time.monotonic()
    case("a new lock after the kill", within, SOON, lambda: client(alive[0]).set("py:new", "t", nx=True, px=LONG))
    print(f"  killed the leader, {dead[1]}; a new lock was taken {time.monotonic() - started:.2f} s later")
    case("fencing grows over the kill", lambda: expect(client(alive[1]).incr("py:fence") > fence, True))
    for name, library in LIBRARIES.items():
        case(f"{name} over the kill", still_held, library, held[name], dead, f"py:{name}:held")
    sys.exit(1 if failures else 0)


main()
