"""The supervision of a driver, with a process that answers as a test says."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from headrace.pipelines.host.driver_process import DriverGone, DriverProcess
from headrace.pipelines.host.retries import WantedQuery
from headrace.pipelines.host.supervised_driver import HUNG_AFTER_S, SupervisedDriver


class AnsweringProcess:
    """Starts what it is asked to start; the stop of a query named `slow` waits."""

    pid = 1

    def __init__(self) -> None:
        self.status: int | None = None
        self.running: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.slow_may_stop = asyncio.Event()
        self.age = 0.0

    async def ask(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        do, name = message["do"], message.get("name", "")
        if self.status is not None:
            raise DriverGone(f"the Spark driver ended with status {self.status}")
        self.asked.append((do, name))
        if do == "stop" and name == "slow":
            await self.slow_may_stop.wait()
        if do == "start":
            self.running.append(name)
        return {"age": self.age, "queries": {each: {"state": "running"} for each in self.running}}

    async def end(self) -> None:
        self.status = -9

    async def close(self) -> None:
        await self.end()


async def supervised(process: AnsweringProcess, wanted: dict[str, WantedQuery]) -> SupervisedDriver:
    async def start() -> DriverProcess:
        return cast(DriverProcess, process)

    return SupervisedDriver("query", start, lambda: wanted.values())


def query(name: str) -> WantedQuery:
    return WantedQuery(name, {"name": name})


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("names", [["slow", "other"], ["other", "slow"]])
def test_a_query_that_stops_slowly_does_not_delay_the_others(names: list[str]) -> None:
    async def run() -> None:
        process = AnsweringProcess()
        wanted = {name: query(name) for name in names}
        driver = await supervised(process, wanted)
        await until(lambda: wanted["other"].sent)
        assert process.running == ["other"]
        # It is looked at meanwhile, too.
        looks = process.asked.count(("look", ""))
        await until(lambda: process.asked.count(("look", "")) > looks)
        assert process.asked.count(("stop", "slow")) == 1, "it is not asked again and again"
        process.slow_may_stop.set()
        await until(lambda: wanted["slow"].sent)
        assert process.running == ["other", "slow"]
        await driver.close()

    asyncio.run(run())


def test_a_query_that_is_stopped_while_it_waits_is_not_started() -> None:
    async def run() -> None:
        process = AnsweringProcess()
        wanted = {"slow": query("slow"), "other": query("other")}
        driver = await supervised(process, wanted)
        await until(lambda: ("stop", "slow") in process.asked)
        del wanted["slow"]
        process.slow_may_stop.set()
        wanted["third"] = query("third")
        driver.wake()
        await until(lambda: wanted["third"].sent)
        assert process.running == ["other", "third"]
        await driver.close()

    asyncio.run(run())


def test_a_driver_whose_java_hangs_is_ended() -> None:
    async def run() -> None:
        process = AnsweringProcess()
        driver = await supervised(process, {})
        await until(lambda: process.asked.count(("look", "")) > 1)
        assert process.status is None
        process.age = HUNG_AFTER_S + 1
        await until(lambda: process.status is not None)
        await driver.close()

    asyncio.run(run())
