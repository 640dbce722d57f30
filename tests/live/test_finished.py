"""Results of other threads reach the requests that wait for them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

pytest.importorskip("fastapi", reason="needs dsrd[serve]")

from dsrd.live.server.finished import Finished


def test_results_and_errors_reach_those_who_wait():
    finished, futures = Finished(), [Future[int]() for _ in range(50)]

    async def ask() -> list[int | BaseException]:
        waiting = [asyncio.create_task(finished.wait_for(future)) for future in futures]
        await asyncio.sleep(0)
        threading.Thread(target=finish).start()
        return await asyncio.gather(*waiting, return_exceptions=True)

    def finish() -> None:
        for number, future in enumerate(futures):
            if number % 10:
                future.set_result(number)
            else:
                future.set_exception(ValueError(number))

    results = asyncio.run(ask())
    assert [str(each) for each in results] == [str(number) for number in range(50)]
    assert [isinstance(each, ValueError) for each in results] == [number % 10 == 0 for number in range(50)]


def test_one_that_is_given_up_leaves_the_queue_and_delays_nobody():
    finished, given_up, other, late = Finished(), Future[int](), Future[int](), Future[int]()

    async def ask() -> int:
        task = asyncio.create_task(finished.wait_for(given_up))
        lost = asyncio.create_task(finished.wait_for(late))
        await asyncio.sleep(0)
        task.cancel()
        late.set_running_or_notify_cancel()  # too late to leave: its result is not wanted
        lost.cancel()
        await asyncio.sleep(0)
        late.set_result(1)
        other.set_result(2)
        return await finished.wait_for(other)

    assert asyncio.run(ask()) == 2
    assert given_up.cancelled()


def test_a_closed_loop_is_no_fault_of_the_thread_that_answers():
    finished, future = Finished(), Future[int]()

    async def leave() -> None:
        task = asyncio.create_task(finished.wait_for(future))
        await asyncio.sleep(0)
        future.set_running_or_notify_cancel()
        task.cancel()

    asyncio.run(leave())
    future.set_result(1)
    again = Future[int]()
    again.set_result(2)
    assert asyncio.run(finished.wait_for(again)) == 2
