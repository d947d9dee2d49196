"""The client's part of the scenarios of server/clients/CONTRACT.md: see cmd/internal/clienttest.

With --asyncio locks are taken and released by tasks of one loop.
"""

import asyncio
import concurrent.futures
import os
import sys
import threading
import time

import holdfast_client as hf


def password():
    try:
        with open(os.environ["HOLDFAST_PASSWORD_FILE"]) as f:
            return "", f.read().strip()
    except FileNotFoundError:
        return "", ""


mutex = threading.Lock()
locks = {}
asking = {}
cancelled = set()
answered = set()
tasks = {}


def say(event, error=None):
    if isinstance(error, hf.LockLost):
        event += " lost"
    elif isinstance(error, hf.RefusedError):
        event += f" refused {error}"
    elif error is not None:
        event += f" error {error}"
    with mutex:
        print(event, flush=True)


def lost(call, loss):
    if loss.reason != "the client was closed":  # which may be before on_lost
        by = f" by {loss.by}: {loss.text}" if loss.by else ""
        say(f"lost {call} {'later' if loss.seconds_left > 0 else 'now'} {loss.reason}{by}")


loop = asyncio.new_event_loop() if "--asyncio" in sys.argv else None


def finish(result):
    """What a method of either client returns."""
    return asyncio.run_coroutine_threadsafe(result, loop).result() if asyncio.iscoroutine(result) else result


def cancel(call):
    """Cancel a call until it is answered: its thread may not have begun to ask."""
    cancelled.add(call)
    while call not in answered:
        if loop is None and call in asking:
            asking[call].cancel()
        elif loop is not None and call in tasks:
            loop.call_soon_threadsafe(tasks[call].cancel)
        time.sleep(0.005)


def acquire_by(lock, call, kind, timeout):
    if loop is None:
        return lock.acquire(blocking=kind != "try", timeout=timeout)

    async def task():
        tasks[call] = asyncio.current_task()
        return await lock.acquire(blocking=kind != "try", timeout=timeout)

    try:
        return finish(task())
    except concurrent.futures.CancelledError:
        return False


def acquire(client, words):
    kind, call, name, options = words[0], words[1], words[2], words[3:]
    note = "".join(o[5:] for o in options if o.startswith("note="))
    if kind == "all":
        lock = client.locks(words[2:])
    elif "shared" in options:
        lock = client.read_lock(name)
    elif options and options[0].startswith("semaphore="):
        permits, limit = options[0][10:].split("/")
        lock = client.semaphore(name, int(limit), int(permits))
    elif options and options[0].startswith("reentrant="):
        with mutex:
            lock = asking.setdefault(name + options[0], client.lock(name, reentrant=True))
    else:
        lock = client.lock(name, note=note)
    asking[call] = lock
    timeout = next((float(o[8:]) for o in options if o.startswith("timeout=")), -1)
    try:
        if not acquire_by(lock, call, kind, timeout):
            return say(f"refused {call} {'cancelled' if call in cancelled else 'not-granted'}")
    except hf.HoldfastError as e:
        return say(f"refused {call}", e)
    finally:
        answered.add(call)
    locks[call] = lock
    lock.on_lost(lambda loss: lost(call, loss))
    say(f"granted {call} {lock.fence}")


def unlock(call):
    try:
        finish(locks[call].release())
        say(f"released {call}")
    except hf.HoldfastError as e:
        say(f"released {call}", e)


def look(client, name):
    try:
        info = finish(client.inspect(name))
        say(f"seen {name} {info.holder_count} {info.waiter_count}")
    except hf.HoldfastError as e:
        say(f"seen {name} 0 0", e)


def watch(client, name):
    def changed(info):
        say(f"change {name} {info.holder_count}" + "".join(" " + p.note for p in info.holders))

    async def task():
        async for info in client.watch(name):
            changed(info)

    if loop is not None:
        return finish(task())
    for info in client.watch(name):
        changed(info)


def fork(client, call, name):
    """A child, which looks at the lock of the call, and asks for a lock by the client and by one of its own."""
    with mutex:  # of which a fork keeps the state: another thread may have it
        pid = os.fork()
    if pid > 0:
        return os.waitpid(pid, 0)
    seen = []
    for ask in (locks[call].check, locks[call].release, client.lock(name).acquire):
        try:
            ask()
            seen.append("nothing")
        except hf.HoldfastError as e:
            seen.append("lost" if isinstance(e, hf.LockLost) else "closed" if isinstance(e, hf.ClosedError) else "error")
    with new_client() as own:
        seen.append("granted" if own.lock(name).acquire(blocking=False) else "not-granted")
    client.close()
    say(f"child {call} {' '.join(seen)}")
    os._exit(0)


def new_client():
    return (hf.aio.Client if loop else hf.Client)(
        os.environ["HOLDFAST_NODES"].split(","), credentials=password, ttl=float(os.environ["HOLDFAST_TTL"].rstrip("s")),
        name="driver",
    )


def main():
    if loop is not None:
        threading.Thread(target=loop.run_forever, daemon=True).start()
    client = new_client()
    for line in sys.stdin:
        words = line.split()
        if words[0] in ("lock", "try", "all"):
            threading.Thread(target=acquire, args=(client, words), daemon=True).start()
        elif words[0] == "unlock":
            threading.Thread(target=unlock, args=(words[1],), daemon=True).start()
        elif words[0] == "cancel":
            threading.Thread(target=cancel, args=(words[1],), daemon=True).start()
        elif words[0] == "look":
            look(client, words[1])
        elif words[0] == "watch":
            threading.Thread(target=watch, args=(client, words[1]), daemon=True).start()
        elif words[0] == "fork":
            fork(client, *words[1:])
        elif words[0] == "pass":
            say(f"passes {words[1]} {str(finish(client.fence_pass(words[1], locks[words[2]].fence))).lower()}")
    finish(client.close())
    say("closed")


main()
