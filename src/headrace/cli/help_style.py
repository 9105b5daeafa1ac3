"""The style of help pages: Typer's, without type names of switches, in our order."""

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    import typer


# Typer changed the class of its contexts between releases, hence Any.
def _tidy(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class ReaderGone(Exception):
    """The reader of our standard output has closed the pipe."""


class Command(TyperCommand):
    """A command whose switches show no type."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _tidy(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group that lists its commands in the order of `wanted_order`, or as they were added."""

    wanted_order: tuple[str, ...] = ()

    def get_params(self, ctx: Any) -> list[Any]:
        return _tidy(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        # Typer reports a closed pipe as a failure; with `| head` it is normal.
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGone from None

    def list_commands(self, ctx: Any) -> list[str]:
        names = list(self.commands)
        return [n for n in self.wanted_order if n in names] or names


def apply(app: "typer.Typer") -> None:
    """Apply the style to the commands of an application."""
    app.info.cls = CommandGroup
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            apply(group.typer_instance)
