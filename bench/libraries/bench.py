"""The benchmark's driver for Python's lock libraries: it reads a request and prints a reply, as bench/internal/drive."""

import asyncio
import collections
import json
import os
import random
import sys
import threading
import time
import uuid

request = json.load(sys.stdin)
addrs = request["target"]["addrs"]
library = request["target"]["name"].split("-", 1)[1]
hot = request["workload"] == "hot"
rest = request["sizes"]["Poll"] / 1e9
run = uuid.uuid4().hex  # names of locks: what a former run left behind disturbs none
counts, errors = collections.Counter(), collections.Counter()
served, last = set(), None


def holdfast():
    import holdfast_client

    return holdfast_client.Client(addrs).lock


def kazoo():
    from kazoo.client import KazooClient

    client = KazooClient(",".join(addrs))
    client.start()
    return lambda name: client.Lock("/" + name)


def redis_py():
    import redis

    host, port = addrs[0].split(":")
    client = redis.Redis(host, int(port))
    return lambda name: client.lock(name, timeout=30)


def name(worker):
    return f"bench:{run}:hot" if hot else f"bench:{run}:{worker}"


def count(worker):
    global last
    counts["pair"] += 1
    counts["handoff"] += last != worker
    last = worker
    served.add(worker)


def pause():
    return rest * (0.5 + random.random()) if hot else 0


def work(worker):
    try:
        lock = {"holdfast": holdfast, "kazoo": kazoo, "redis-py": redis_py}[library]()(name(worker))
        while True:
            lock.acquire()
            count(worker)
            lock.release()
            time.sleep(pause())
    except Exception as e:
        errors[repr(e)] += 1


async def task(worker):
    import holdfast_client

    try:
        lock = holdfast_client.aio.Client(addrs).lock(name(worker))
        while True:
            await lock.acquire()
            count(worker)
            await lock.release()
            await asyncio.sleep(pause())
    except Exception as e:
        errors[repr(e)] += 1


async def tasks():
    await asyncio.gather(*map(task, range(request["connections"])))


if library == "asyncio":
    threading.Thread(target=asyncio.run, args=(tasks(),), daemon=True).start()
else:
    for i in range(request["connections"]):
        threading.Thread(target=work, args=(i,), daemon=True).start()
while len(served) < request["connections"] and not errors:  # all are connected
    time.sleep(0.01)
time.sleep(request["warmup"] / 1e9)
begun, before = time.monotonic(), counts.copy()
time.sleep(request["measure"] / 1e9)
seconds, after = time.monotonic() - begun, counts.copy()
steps = {step: {"count": after[step] - n, "per_second": (after[step] - n) / seconds} for step, n in before.items()}
print(json.dumps({"figures": {"steps": steps, "errors": errors}}), flush=True)
os._exit(0)  # some wait
