import asyncio
import socket
import threading
import unittest

from holdfast_client import Client, NotAcquired, aio

NOWHERE = "127.0.0.1:1"  # nobody listens


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
        for nodes in "127.0.0.1:1", [], ["127.0.0.1"], ["redis://127.0.0.1:1"], [("127.0.0.1", 1)]:
            with self.assertRaisesRegex(ValueError, "host:port"):
                Client(nodes)
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

    def test_block_in_time(self) -> None:
        lock = Client([NOWHERE]).semaphore("nightly", 3, timeout=7)
        lock.acquire = lambda timeout: timeout != 7
        with self.assertRaisesRegex(NotAcquired, "7 s"), lock:
            self.fail("granted")


if __name__ == "__main__":
    unittest.main()
