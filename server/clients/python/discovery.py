"""redis-py finds the leader by Sentinel, or as a Redis Cluster, and again after a kill.

Usage: discovery.py sentinel|cluster. Environment: HOLDFAST_NODES, HOLDFAST_SENTINELS (host:port,...)
and HOLDFAST_KILL, a command that kills the leader and prints the address it had.
"""

import os
import subprocess
import sys
import time

import redis
import redis.cluster
import redis.sentinel

NODES = [(h, int(p)) for h, p in (n.split(":") for n in os.environ["HOLDFAST_NODES"].split(","))]
SENTINELS = [(h, int(p)) for h, p in (n.split(":") for n in os.environ["HOLDFAST_SENTINELS"].split(","))]
SOON = 10  # seconds within which a lock can be taken after the kill

failures = 0


def say(name, good, why=""):
    global failures
    failures += not good
    print(f"  {'ok   ' if good else 'FAIL '} {name}{'' if good else ': ' + repr(why)}", flush=True)


def within(seconds, run):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return run()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def over_the_kill(name, client, leader):
    """client takes a lock, the leader dies, and client goes on with the next leader."""
    before = leader()
    say(f"{name}: knows the leader", before in NODES, before)
    say(f"{name}: takes a lock", client.set("py:held", "token", nx=True, px=120_000) is True)
    fence = client.incr("py:fence")
    dead = subprocess.check_output(os.environ["HOLDFAST_KILL"], shell=True, text=True).strip().split(":")
    say(f"{name}: the leader was the leader", before == (dead[0], int(dead[1])), dead)
    try:
        say(f"{name}: the lock is held still", within(SOON, lambda: client.get("py:held")) == "token")
        say(f"{name}: fencing grows", within(SOON, lambda: client.incr("py:fence")) > fence)
        after = within(SOON, leader)
        say(f"{name}: knows the next leader", after in NODES and after != before, after)
    finally:
        within(SOON, lambda: client.delete("py:held", "py:fence"))


def sentinel(protocol):
    name = f"redis-py {redis.__version__} RESP{protocol} by Sentinel"
    options = {"socket_timeout": 3, "decode_responses": True, "protocol": protocol}
    found = redis.sentinel.Sentinel(SENTINELS, sentinel_kwargs=options, **options)
    state = found.sentinels[0].sentinel_master("mymaster")
    say(f"{name}: two other Sentinels", int(state["num-other-sentinels"]) == 2, state)
    say(f"{name}: two replicas", len(found.discover_slaves("mymaster")) == 2)
    say(f"{name}: a replica serves", found.slave_for("mymaster").set("py:x", "1", px=1000) is True)
    over_the_kill(name, found.master_for("mymaster"), lambda: found.discover_master("mymaster"))


def cluster(protocol):
    name = f"redis-py {redis.__version__} RESP{protocol} as a Cluster"
    client = redis.cluster.RedisCluster(
        startup_nodes=[redis.cluster.ClusterNode(h, p) for h, p in NODES],
        socket_timeout=3, decode_responses=True, protocol=protocol, read_from_replicas=True,
    )

    def leader():
        client.nodes_manager.initialize()
        node = client.get_primaries()[0]
        return (node.host, node.port)

    say(f"{name}: one primary, two replicas", (len(client.get_primaries()), len(client.get_replicas())) == (1, 2))
    say(f"{name}: a key's slot", client.keyslot("foo") == 12182)
    over_the_kill(name, client, leader)


def main():
    run = {"sentinel": sentinel, "cluster": cluster}[sys.argv[1]]
    for protocol in 2, 3:
        subprocess.run(os.environ["HOLDFAST_START"], shell=True, check=True)
        time.sleep(3)  # until the restarted node is among the replicas
        run(protocol)
    sys.exit(failures > 0)


main()
