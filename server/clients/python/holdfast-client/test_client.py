import asyncio
import logging
import socket
import ssl
import threading
import unittest

from holdfast_client import Client, NotAcquired, aio
from holdfast_client._conn import encode, read_value

NOWHERE = "127.0.0.1:1"  # nobody listens

REPLIES = {
    "HELLO": b"%0\r\n", "SESSION.OPEN": b":5\r\n", "SESSION.KEEPALIVE": b":9000\r\n", "SESSION.CLOSE": b":1\r\n",
    "LOCK.ACQUIRE": b":7\r\n", "LOCK.CANCEL": b":0\r\n", "LOCK.RELEASE": b":0\r\n",
}


class Node:
    """A node that answers the commands of one connection. Without replies it is one that hangs."""

    def __init__(self, replies=REPLIES):
        self.replies = replies
        self.asked = threading.Event()  # for a lock
        self.words = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def serve(self):
        self.client, _ = self.listener.accept()
        stream = self.client.makefile("rb")
        try:
            while True:
                words = read_value(stream)
                self.words.append(words)
                self.client.sendall(self.replies.get(words[0], b""))
                if words[0] == "LOCK.ACQUIRE":
                    self.owner = words[2]
                    self.asked.set()
        except OSError:
            self.client.close()

    def lose(self):
        self.client.sendall(encode(["lock", "lost", "nightly", self.owner]).replace(b"*4", b">6") + b":7\r\n+broken\r\n")


class CancelledWithTheResult(unittest.TestCase):
    """A task that is cancelled between the result and its next turn gives the result back."""

    def test_undo(self) -> None:
        undone = threading.Event()

        async def main() -> None:
            loop = asyncio.get_running_loop()
            task = loop.create_task(aio._in_thread(lambda: 7, undo=lambda result: undone.set() if result == 7 else None))
            soon = loop.call_soon_threadsafe

            def deliver(callback, *args):
                return soon(lambda: (callback(*args), task.cancel()))

            loop.call_soon_threadsafe = deliver
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        self.assertTrue(undone.wait(20))

    def test_undo_behind_the_loop(self) -> None:
        end, undone = threading.Event(), threading.Event()

        async def main() -> None:
            task = asyncio.ensure_future(aio._in_thread(end.wait, undo=lambda result: undone.set()))
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(main())
        end.set()
        self.assertTrue(undone.wait(20))


class Mistaken(unittest.TestCase):
    """Who uses the client in a wrong way is told how."""

    def test_nodes_and_names(self) -> None:
        for nodes in "127.0.0.1:1", [], ["127.0.0.1"], ["redis://127.0.0.1:1"], [("127.0.0.1", 1)], ["a:0"], ["a:65536"]:
            with self.assertRaisesRegex(ValueError, "host:port"):
                Client(nodes)
        for make in Client, aio.Client:
            with self.assertRaisesRegex(TypeError, "SSLContext"):
                make([NOWHERE], ssl=True)
        with self.assertRaises(TypeError):
            Client([NOWHERE]).lock(b"nightly")

    def test_no_node(self) -> None:
        with Client([NOWHERE]) as client, self.assertLogs("holdfast_client", "WARNING") as logs:
            for wait in {"blocking": False}, {"timeout": 0.3}:
                with self.assertRaisesRegex(NotAcquired, NOWHERE):
                    client.lock("nightly").acquire(**wait)
        self.assertEqual(len(logs.output), 1, logs.output)
        with Client(["a" * 64 + ":1"]) as client, self.assertRaisesRegex(NotAcquired, "label"):
            client.lock("nightly").acquire(blocking=False)

    def test_credentials(self) -> None:
        def credentials():
            raise OSError("sealed")

        with socket.create_server(("127.0.0.1", 0)) as listener:
            with Client(["127.0.0.1:%d" % listener.getsockname()[1]], credentials=credentials) as client:
                with self.assertRaisesRegex(NotAcquired, "sealed"):
                    client.lock("nightly").acquire(timeout=0.3)

    def test_password(self) -> None:
        for wrong in {"password": b"secret"}, {"password": 7}, {"username": b"user"}:
            with self.assertRaisesRegex(TypeError, "str"):
                Client([NOWHERE], **wrong)
        for given, sent in (
            ({"username": None, "password": "secret"}, ["AUTH", "default", "secret"]),
            ({"username": "user", "password": None}, ["AUTH", "user", ""]),
            ({"username": None, "password": None}, []),
        ):
            with Node() as node, Client([node.address], **given) as client:
                client.lock("nightly").acquire()
                self.assertEqual(node.words[0][2:-2], sent)

    def test_tls(self) -> None:
        class Sealed(ssl.SSLContext):
            def wrap_socket(self, *args, **named):
                raise RuntimeError("sealed")

        with Node() as node, Client([node.address], ssl=Sealed(ssl.PROTOCOL_TLS_CLIENT)) as client:
            with self.assertRaisesRegex(NotAcquired, "sealed"):
                client.lock("nightly").acquire(timeout=0.3)

    def test_tls_is_wanted(self) -> None:
        def close_in_silence(listener):
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1024)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=close_in_silence, args=(listener,), daemon=True).start()
            with Client(["127.0.0.1:%d" % listener.getsockname()[1]]) as client:
                with self.assertRaisesRegex(NotAcquired, r"does the port want TLS\?"):
                    client.lock("nightly").acquire(blocking=False)

    def test_first_call(self) -> None:
        with Node() as node, Client([node.address]) as client:
            self.assertTrue(client.lock("nightly").acquire(timeout=0))
        with Node({}) as node, Client([node.address]) as client:
            self.assertFalse(client.lock("nightly").acquire(timeout=0.01))

    def test_cancelled_block(self) -> None:
        with Node({**REPLIES, "LOCK.ACQUIRE": b":0\r\n"}) as node, Client([node.address]) as client:
            lock = client.lock("nightly")
            threading.Thread(target=lambda: (node.asked.wait(), lock.cancel())).start()
            with self.assertRaisesRegex(NotAcquired, "cancelled"), lock:
                self.fail("granted")

    def test_blocked_log(self) -> None:
        """A log that blocks holds up neither a call nor the notice of a loss."""
        end, refused, lost = threading.Event(), threading.Event(), threading.Event()
        logger, handler = logging.getLogger("holdfast_client"), logging.Handler()
        handler.emit = lambda record: end.wait()
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.addCleanup(end.set)
        with Client([NOWHERE]) as unreached, Node() as node, Client([node.address]) as client:
            def refuse():
                try:
                    unreached.lock("nightly").acquire(blocking=False)
                except NotAcquired:
                    refused.set()

            threading.Thread(target=refuse, daemon=True).start()
            seen = refused.wait(20)
            lock = client.lock("nightly")
            lock.acquire()
            lock.on_lost(lambda loss: lost.set())
            node.lose()
            seen = [seen, lost.wait(20)]
            end.set()
        self.assertEqual(seen, [True, True])

    def test_block_in_time(self) -> None:
        lock = Client([NOWHERE]).semaphore("nightly", 3, timeout=7)
        lock.acquire = lambda timeout: timeout != 7
        with self.assertRaisesRegex(NotAcquired, "7 s"), lock:
            self.fail("granted")


if __name__ == "__main__":
    unittest.main()
