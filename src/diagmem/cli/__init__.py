"""The command line: the only place that prints or writes files. Commands are loaded when they are needed."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from diagmem import __version__
from diagmem.cli._commands import DESCRIBED
from diagmem.cli._options import with_common_options
from diagmem.cli._show import ANSWER_IS_NO, BAD_INPUT
from diagmem.model.errors import DiagmemError, UnsafePlanError, one_line

GROUPS: dict[str, list[str]] = DESCRIBED["groups"]
"""Commands by the user's question, the everyday ones first. Each is the `command` of the module of its name, but for
those in KNOWN."""

COMMANDS = tuple(name for names in GROUPS.values() for name in names)

KNOWN = ("targets", "zoo", "schema", "completion")
"""Commands of the module `known`."""

INTERRUPTED = 130


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = ("known", cmd_name) if cmd_name in KNOWN else (cmd_name, "command")
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        return with_common_options(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for question, names in GROUPS.items():
            commands = [(name, command) for name in names if (command := self.get_command(ctx, name))]
            formatter.write(f"\n{question}\n")
            with formatter.indentation():
                formatter.write_dl([(f"{name:<10}", command.get_short_help_str(80)) for name, command in commands])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A command that does not exist is answered with the nearest one that does."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from error

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        with _ending_with_reader():
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _ending_with_reader():
            return super().invoke(ctx)


@contextmanager
def _ending_with_reader() -> Iterator[None]:
    """When the reader of our output has gone (`diagmem … | head`), that is no error; click would end with 1."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="diagmem")
@click.pass_context
def diagmem(ctx: click.Context) -> None:
    """Run neural networks in less RAM on micro-controllers, and prove that they still compute the same bytes.

    MODEL is a .tflite or .onnx file, or zoo:NAME for a built-in model (see `diagmem zoo`).

    \b
    Start here:
      diagmem plan model.tflite --target NUCLEO-L4R5ZI
      diagmem emit c model.tflite --target NUCLEO-L4R5ZI -o firmware
      diagmem ui model.tflite

    Exit status: 0 done; 1 the answer is no (does not fit, verification failed);
    2 bad usage or input.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> NoReturn:
    """Entry point. Every failure that a user can cause ends in one line on standard error, never in a traceback."""
    with _hearing_interruptions() as heard:
        try:
            sys.exit(diagmem(prog_name="diagmem", standalone_mode=False) or 0)
        except Exception as error:
            # Whatever goes wrong after that, such as an import under way: this is the reason.
            if heard:
                _fail("interrupted", INTERRUPTED)
            _end(error)
        except KeyboardInterrupt:
            _fail("interrupted", INTERRUPTED)


def _end(error: Exception) -> NoReturn:
    """Says what went wrong and ends with the status for it. What is not the user's fault is raised again."""
    if isinstance(error, click.exceptions.Exit):
        sys.exit(error.exit_code)
    if isinstance(error, click.Abort):
        _fail("interrupted", INTERRUPTED)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "diagmem"
        message = _why(error, path) or error.format_message().replace("\n", " ")
        stop = "" if message.endswith((".", "?", ")")) else "."
        _fail(f"{message}{stop} See '{path} --help'.", BAD_INPUT)
    if isinstance(error, click.ClickException):
        _fail(error.format_message(), BAD_INPUT)
    if isinstance(error, UnsafePlanError):
        _fail(str(error), ANSWER_IS_NO)
    if isinstance(error, DiagmemError):
        _fail(str(error), BAD_INPUT)
    if isinstance(error, MemoryError):
        _fail("there is not enough memory for it", BAD_INPUT)
    if isinstance(error, OSError):
        _fail(f"{error.filename or 'file'}: {error.strerror or error}", BAD_INPUT)
    raise error


def _why(error: click.UsageError, command: str) -> str | None:
    """Why a command does not take an option that others do, where that is known."""
    if not isinstance(error, click.NoSuchOption):
        return None
    from diagmem.cli._options import why_not

    reason = why_not(command.partition(" ")[2], error.option_name)
    return reason and f"{error.option_name}: {reason}."


@contextmanager
def _hearing_interruptions() -> Iterator[list[int]]:
    """The list of signals that have asked the command to end. One that was started to ignore them goes on to."""
    heard: list[int] = []

    def hear(number: int, _: object) -> NoReturn:
        heard.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    is_heard = before is not signal.SIG_IGN and threading.current_thread() is threading.main_thread()
    if is_heard:
        signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        if is_heard:
            signal.signal(signal.SIGINT, before)


def _fail(message: str, status: int) -> NoReturn:
    # Whatever a message quotes, a terminal shows it as it is, in one line.
    line = " ".join(message.split())
    click.echo(f"diagmem: {one_line(line, len(line) * 10)}", err=True)
    sys.exit(status)
