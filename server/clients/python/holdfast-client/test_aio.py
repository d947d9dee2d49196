import asyncio
import threading
import unittest

from holdfast_client import aio


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


if __name__ == "__main__":
    unittest.main()
