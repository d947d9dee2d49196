"""Lock libraries of Python under contention: see ../exclusive.sh.

Environment: HOLDFAST_NODES (host:port,...).
"""

import contextlib
import importlib.util
import os
import queue
import random
import sys
import threading
import time
import uuid

import redis

NODES = [n.split(":") for n in os.environ["HOLDFAST_NODES"].split(",")]
NAME = sys.argv[1] if len(sys.argv) > 1 else None  # the case, and the lock
LEASE = 5  # seconds
RATE = 200  # a day


def client(node, **options):
    return redis.Redis(**{"host": node[0], "port": int(node[1]), "socket_timeout": 5} | options)


# Each function makes a worker's lock: a function without arguments whose context manager yields whether the lock is held.
def portalocker(node):
    import portalocker

    lock = portalocker.RedisLock(NAME, client(node), timeout=5, check_interval=0.1, interrupt_on_lost=False)

    @contextlib.contextmanager
    def acquire():
        with lock:
            yield True
        time.sleep(random.uniform(0.5, 1))  # workers that come again at once starve others, on Redis too

    return acquire


def dramatiq(limit):
    def make(node):
        from dramatiq.rate_limits import ConcurrentRateLimiter
        from dramatiq.rate_limits.backends import RedisBackend

        limiter = ConcurrentRateLimiter(RedisBackend(client=client(node)), NAME, limit=limit, ttl=LEASE * 1000)
        return lambda: limiter.acquire(raise_on_failure=False)

    return make


def tasktiger(limit):
    def make(node):
        from tasktiger.redis_semaphore import Semaphore

        semaphore = Semaphore(client(node), NAME, uuid.uuid4().hex, LEASE, limit)

        @contextlib.contextmanager
        def acquire():
            held, _ = semaphore.acquire()
            yield held
            if held:
                semaphore.release()

        return acquire

    return make


def tooz(node):
    from tooz import coordination

    coordinator = coordination.get_coordinator(f"redis://{node[0]}:{node[1]}?lock_timeout={LEASE}", uuid.uuid4().bytes)
    coordinator.start()
    return lambda: coordinator.get_lock(NAME.encode())


def limits(strategy):
    def make(node):
        import limits

        limiter = getattr(limits.strategies, strategy)(limits.storage.RedisStorage(f"redis://{node[0]}:{node[1]}"))
        return lambda: limiter.hit(limits.RateLimitItemPerDay(RATE), NAME)

    return make


def django_cache(alias):
    def make(node):
        from django.conf import settings
        from django.core.cache import CacheHandler

        with SETTINGS:
            if not settings.configured:
                settings.configure()
        backend = {"django": "django.core.cache.backends.redis.RedisCache", "django_redis": "django_redis.cache.RedisCache"}
        cache = CacheHandler({"default": {"BACKEND": backend[alias], "LOCATION": f"redis://{node[0]}:{node[1]}"}})["default"]

        @contextlib.contextmanager
        def add():
            held = cache.add(NAME, uuid.uuid4().hex, LEASE)
            yield held
            if held:
                cache.delete(NAME)

        return add if alias == "django" else lambda: cache.lock(NAME, timeout=LEASE, sleep=0.05)

    return make


def redbeat(node):
    """The lock that lets one of several processes of `celery beat` work."""
    import types

    import celery
    from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock

    app = celery.Celery(broker=f"redis://{node[0]}:{node[1]}", set_as_current=False)
    app.conf.update(redbeat_lock_key=f"redbeat:{NAME}", redbeat_lock_timeout=LEASE)

    @contextlib.contextmanager
    def acquire():
        beat = types.SimpleNamespace(scheduler=RedBeatScheduler(app, max_interval=0.05, lazy=True))
        acquire_distributed_beat_lock(beat)
        beat.scheduler.tick()  # renews the lock
        yield True
        beat.scheduler.close()

    return acquire


def celery_singleton(node):
    from celery_singleton.backends.redis import RedisBackend

    backend = RedisBackend(f"redis://{node[0]}:{node[1]}")

    @contextlib.contextmanager
    def acquire():
        held = backend.lock(NAME, uuid.uuid4().hex, LEASE)
        yield held
        if held:
            backend.unlock(NAME)

    return acquire


def tick(scheduler):
    TICKS[scheduler].put(None)


def apscheduler(node):
    """Each run of a job, which the scheduler keeps on the nodes, takes a lock of redis-py."""
    from apscheduler.jobstores.redis import RedisJobStore
    from apscheduler.schedulers.background import BackgroundScheduler

    name = uuid.uuid4().hex
    TICKS[name] = queue.Queue()
    store = RedisJobStore(jobs_key=f"{name}:jobs", run_times_key=f"{name}:times", host=node[0], port=int(node[1]))
    scheduler = BackgroundScheduler(jobstores={"default": store}, timezone="UTC")
    scheduler.add_job(tick, "interval", [name], seconds=0.05, id="job", replace_existing=True)
    scheduler.start()

    def acquire():
        TICKS[name].get()
        return client(node).lock(NAME, timeout=LEASE, sleep=0.05)

    return acquire


SETTINGS = threading.Lock()
TICKS = {}  # by the name of a scheduler

CASES = {  # how many may hold, and a worker's lock; the name begins with the package
    "portalocker": (1, portalocker),
    "dramatiq": (1, dramatiq(1)),
    "dramatiq-three": (3, dramatiq(3)),
    "tasktiger": (1, tasktiger(1)),
    "tasktiger-three": (3, tasktiger(3)),
    "tooz": (1, tooz),
    "django": (1, django_cache("django")),
    "django_redis": (1, django_cache("django_redis")),
    "redbeat": (1, redbeat),
    "celery_singleton": (1, celery_singleton),
    "apscheduler": (1, apscheduler),
    "limits-fixed-window": (RATE, limits("FixedWindowRateLimiter")),
    "limits-moving-window": (RATE, limits("MovingWindowRateLimiter")),
    "limits-sliding-window": (RATE, limits("SlidingWindowCounterRateLimiter")),
}


def dramatiq_maintenance():
    """The messages of a worker that died go back to its queue, by one script."""
    from dramatiq.brokers.redis import RedisBroker

    c, messages = client(NODES[1], socket_timeout=60), 100_000
    for first in range(0, messages, 2000):
        ids = [f"message-{i}" for i in range(first, first + 2000)]
        c.sadd("dramatiq:__acks__.dead.queue", *ids)
        c.hset("dramatiq:queue.msgs", mapping=dict.fromkeys(ids, "data"))
    c.zadd("dramatiq:__heartbeats__", {"dead": 1})
    RedisBroker(client=c, maintenance_chance=1_000_000).do_qsize("queue")
    say(c.llen("dramatiq:queue"), "messages given back")
    assert c.llen("dramatiq:queue") == messages


HOUSEKEEPING = {"dramatiq-maintenance": dramatiq_maintenance}


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def work(worker, make):
    """Until a rate refuses the worker."""
    acquire = None
    while True:
        try:
            acquire = acquire or make(NODES[worker % 3])
            held = acquire()
            if held is False:
                return
            if held is True:
                say("+", worker, "job")
                time.sleep(0.02)
                continue
            with held as entered:
                if entered:
                    say("+", worker, "job")
                    time.sleep(0.005)
                    say("-", worker, "job")
        except Exception as e:
            print(f"worker {worker}: {e!r}", file=sys.stderr, flush=True)
        time.sleep(random.uniform(0.005, 0.02))


def main():
    if NAME is None:
        print(*(name for name in CASES | HOUSEKEEPING if importlib.util.find_spec(name.split("-")[0])), sep="\n")
        return
    if NAME in HOUSEKEEPING:
        HOUSEKEEPING[NAME]()
        return
    limit, make = CASES[NAME]
    say("rate" if limit == RATE else "locks", limit)
    workers = [threading.Thread(target=work, args=(worker, make)) for worker in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


main()
