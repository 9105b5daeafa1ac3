"""Dead letters of connectors, for the REST interface: the host reads and runs them."""

from headrace.connect.errors import not_found
from headrace.connect.hosting import ConnectorPlan, Host
from headrace.connect.letter_orders import LetterOrder, LettersRefused, LetterView
from headrace.connect.runner import ConnectorRunner
from headrace.connect.storage.store import ConnectStore
from headrace.service.errors import HttpError


class ConnectorLetters:
    """The dead letters of all connectors. Methods raise HttpError."""

    def __init__(self, store: ConnectStore, host: Host, runner: ConnectorRunner) -> None:
        self._store = store
        self._host = host
        self._runner = runner

    def _plan(self, name: str) -> ConnectorPlan:
        found = self._store.configs.connectors.get(name)
        if found is None:
            raise not_found(f"Connector {name} not found")
        return self._runner.plan(name, found.config)

    async def view(self, name: str, view: LetterView) -> dict[str, object]:
        """The letters that wait."""
        plan = self._plan(name)
        try:
            return await self._host.view_letters(plan, view)
        except LettersRefused as error:
            raise HttpError(error.status, str(error)) from None

    async def run(self, name: str, order: LetterOrder) -> dict[str, object]:
        """Begin a run, or only plan it."""
        plan = self._plan(name)
        try:
            return await self._host.run_letters(plan, order)
        except LettersRefused as error:
            raise HttpError(error.status, str(error)) from None

    async def newest_run(self, name: str) -> dict[str, object]:
        """The newest run; 404 if there was none since the worker was started."""
        self._plan(name)
        found = await self._host.letter_run(name)
        if found is None:
            raise not_found(f"No run over the dead letters of {name} since the worker was started")
        return found

    async def stop(self, name: str) -> None:
        """End the run; returns when it writes nothing more."""
        plan = self._plan(name)
        try:
            await self._host.stop_letters(plan)
        except LettersRefused as error:
            raise HttpError(error.status, str(error)) from None
