"""The root command: finds sub-commands lazily, turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from armillary import __version__, catalog
from armillary.errors import BAD_INPUT_TYPES, ExitCode, MissingExtra
from armillary.output import terminal

#: Commands of the machinery: name -> (module that holds ``app``, help line).
COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("armillary.cli.listing", "List all methods."),
    "info": ("armillary.cli.info", "What a method gives, its claims and how they stand."),
    "doctor": ("armillary.cli.doctor", "What is installed, what is missing, how to mend it."),
    "bench": ("armillary.cli.bench", "Run a method's evidence on this machine."),
    "compare": ("armillary.cli.compare", "Show which verdicts and figures moved; a gate for CI."),
    "report": ("armillary.cli.report", "Build the static report of all evidence."),
    "new": ("armillary.cli.new", "Write the skeleton of a new method."),
    "cache": ("armillary.cli.cache", "Show or clear what is cached."),
}

#: Options of the root that are understood anywhere on the line.
_ANYWHERE = ("--quiet", "--verbose", "--debug")


class LazyGroup(TyperGroup):
    """Lists sub-commands from plain data; imports one only to run it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *sorted(method.card.slug for method in catalog.methods())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in with the command's name and help line: enough for a listing."""
        if cmd_name in COMMANDS:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1], rich_help_panel="Commands")
        for method in catalog.methods():
            if method.card.slug == cmd_name:
                return TyperCommand(cmd_name, help=method.card.gift, rich_help_panel="Methods")
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, stand_in, rest = super().resolve_command(ctx, args)
        if stand_in is None or name is None:
            return name, stand_in, rest
        return name, self.load(name), rest

    def load(self, name: str) -> Any:
        """The real command."""
        if name in COMMANDS:
            module = importlib.import_module(COMMANDS[name][0])
        else:
            module = importlib.import_module(catalog.get(name).command_module)
        module.app._add_completion = False  # completion belongs to the root alone
        command = typer.main.get_command(module.app)
        command.name = name
        return command


app = typer.Typer(
    name="armillary",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        print(f"armillary {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print details too.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Machine-learning methods for your own work, each with its evidence.

    Start with: armillary list, armillary bench recalibration --profile quick, armillary report.
    Every command explains itself with --help.
    """
    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose exclude each other")
    terminal.configure(quiet=quiet, verbose=verbose)


def _hoist(arguments: list[str]) -> list[str]:
    """Bring the root's own options to the front, wherever they were typed before ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    head, tail = arguments[:end], arguments[end:]
    return [a for a in head if a in _ANYWHERE] + [a for a in head if a not in _ANYWHERE] + tail


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and give its exit code; see `armillary.errors.ExitCode`."""
    arguments = _hoist(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if not debug:
        warnings.showwarning = _say_warning
    usage_error, click_exception = cast(list[type[Exception]], typer.BadParameter.__mro__[1:3])
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments, prog_name="armillary", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
    except click_exception as error:
        return _usage(error, isinstance(error, usage_error))
    except BrokenPipeError:
        # The reader went away; nothing more can be said on stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        if debug:
            raise
        error = _name_extra(error, arguments)
        bad_input = isinstance(error, BAD_INPUT_TYPES)
        _say(_message(error) if bad_input else f"failed: {type(error).__name__}: {error}")
        if not bad_input:
            _say("run again with --debug to see the traceback")
        return ExitCode.BAD_INPUT if bad_input else ExitCode.FAILED
    if code == ExitCode.INTERRUPTED:
        terminal.console().note("interrupted")
    return code if isinstance(code, int) else ExitCode.OK


def _name_extra(error: Exception, arguments: list[str]) -> Exception:
    """An absent package of a method's sub-command, told as the extra that brings it."""
    if not isinstance(error, ModuleNotFoundError) or isinstance(error, MissingExtra):
        return error
    for method in catalog.methods():
        if method.card.slug in arguments and method.missing_modules() and method.card.extra:
            return MissingExtra(method.card.slug, method.card.extra, error.name or "")
    return error


def _usage(error: Any, is_usage: bool) -> int:
    """Say what was wrong with the command line; a bare group shows its help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        print(context.get_help())
        return ExitCode.BAD_INPUT
    _say(error.format_message())
    if is_usage and context is not None:
        _say(f"try: {context.command_path} --help")
    return error.exit_code


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.strerror or type(error).__name__}: {str(error.filename)!r}"
    return str(error) or type(error).__name__


def _say_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning in one line, without the source that raised it; libraries' own are details."""
    own = category.__module__.startswith("armillary")
    (terminal.console().note if own else terminal.console().detail)(f"warning: {message}")


def _say(text: str) -> None:
    """An error, on stderr, even when quiet."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    line = f"armillary: {text}\n".encode(encoding, errors="replace").decode(encoding)
    sys.stderr.write(line)


def main() -> None:
    """The console script."""
    code = run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(int(code))
