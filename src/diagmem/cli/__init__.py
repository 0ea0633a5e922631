"""The command line: the only place that prints or writes files. One module per command, loaded when it is needed."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from typing import NoReturn

import click

from diagmem import __version__
from diagmem.errors import DiagmemError, UnsafePlanError

IN_ORDER_OF_USE = (
    "inspect",
    "overlap",
    "plan",
    "emit",
    "verify",
    "trace",
    "report",
    "place",
    "targets",
    "zoo",
    "paper",
)

BAD_INPUT = 2
ANSWER_IS_NO = 1


class _Commands(click.Group):
    """Every module of this package that does not start with an underscore is a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
        return sorted(found, key=lambda name: IN_ORDER_OF_USE.index(name) if name in IN_ORDER_OF_USE else len(found))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="diagmem")
@click.pass_context
def diagmem(ctx: click.Context) -> None:
    """Run neural networks in less RAM on micro-controllers, and prove that they still compute the same bytes.

    MODEL is a .tflite file, or zoo:NAME for a built-in model (see `diagmem zoo`).

    \b
    Which layer sets the peak?   diagmem inspect model.tflite
    Does it fit?                 diagmem plan model.tflite --target STM32F103xF
    How do I make it fit?        diagmem plan model.tflite --schedule rows
    May I trust the result?      diagmem verify model.tflite --on host,cortex-m4
    As C code:                   diagmem emit c model.tflite -o firmware/
    For TensorFlow Lite Micro:   diagmem emit tflm model.tflite -o smaller.tflite
    Without a model at hand:     diagmem plan zoo:vww_96_int8

    Exit status: 0 done; 1 the answer is no (does not fit, verification failed); 2 bad usage or input.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> NoReturn:
    """Entry point. Every failure that a user can cause ends in one line on standard error, never in a traceback."""
    try:
        sys.exit(diagmem(standalone_mode=False) or 0)
    except click.exceptions.Exit as exit_request:
        sys.exit(exit_request.exit_code)
    except click.Abort:
        _fail("interrupted", 130)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "diagmem"
        _fail(f"{error.format_message().replace(chr(10), ' ')} See '{path} --help'.", BAD_INPUT)
    except click.ClickException as error:
        _fail(error.format_message(), BAD_INPUT)
    except UnsafePlanError as error:
        _fail(str(error), ANSWER_IS_NO)
    except DiagmemError as error:
        _fail(str(error), BAD_INPUT)
    except BrokenPipeError:
        # The reader of our output has gone (`diagmem … | head`): that is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'file'}: {error.strerror or error}", BAD_INPUT)


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"diagmem: {' '.join(message.split())}", err=True)
    sys.exit(status)
