"""redis-py connects as CONNECT.md has it: by one address, by Sentinel and as a Redis Cluster, over a kill of the leader.

Usage: connect.py redis-py|redis-py-defaults single|sentinel|cluster, in the folder of ca.crt.
Environment: HOLDFAST_PASSWORD, and HOLDFAST_KILL, a command that kills the leader.
"""

import os
import subprocess
import sys
import time

import redis

# <tls>
tls = dict(password=os.environ["HOLDFAST_PASSWORD"], ssl=True, ssl_ca_certs="ca.crt")
# </tls>


def single():
    # <single>
    client = redis.Redis("10.0.0.1", 6379, **tls, socket_timeout=3, socket_connect_timeout=1)
    # </single>
    return client


def sentinel():
    # <sentinel>
    from redis.retry import Retry
    from redis.backoff import NoBackoff
    nodes = [("10.0.0.1", 26379), ("10.0.0.2", 26379), ("10.0.0.3", 26379)]
    quick = dict(tls, socket_timeout=0.5, retry=Retry(NoBackoff(), 0))
    client = redis.Sentinel(nodes, sentinel_kwargs=quick, **tls, socket_timeout=3).master_for("mymaster")
    # </sentinel>
    return client


def cluster():
    # <cluster>
    from redis.cluster import ClusterNode
    nodes = [ClusterNode("10.0.0.1", 6379), ClusterNode("10.0.0.2", 6379), ClusterNode("10.0.0.3", 6379)]
    client = redis.RedisCluster(startup_nodes=nodes, **tls, socket_timeout=3, socket_connect_timeout=1)
    # </cluster>
    return client


def defaults():
    nodes = [("10.0.0.1", 26379), ("10.0.0.2", 26379), ("10.0.0.3", 26379)]
    return redis.Sentinel(nodes, sentinel_kwargs=tls, **tls).master_for("mymaster")


def main(name, mode):
    client = {"single": single, "sentinel": sentinel, "cluster": cluster}[mode]()
    if name == "redis-py-defaults":
        client = defaults()
    key = f"connect:{name}:{mode}"
    assert client.set(key, "token", nx=True, ex=120), "the lock is taken"
    fence = client.incr(key + ":fence")
    dead = subprocess.check_output(os.environ["HOLDFAST_KILL"], shell=True, text=True).strip()
    began = time.monotonic()
    while True:
        try:
            assert client.incr(key + ":fence") > fence
            break
        except redis.RedisError as error:
            if time.monotonic() - began > 30:
                raise error
            time.sleep(0.01)
    took = time.monotonic() - began
    assert client.get(key) == b"token", "the lock is held still"
    print(f"  ok    {name}, {mode}: {took:.2f} s after the end of {dead}", flush=True)


main(*sys.argv[1:])
