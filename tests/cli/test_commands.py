"""What commands.toml says of the commands is what they take."""

from __future__ import annotations

import click
import pytest

from diagmem.cli import COMMANDS, diagmem
from diagmem.cli._commands import DESCRIBED

PATHS = [name for name in DESCRIBED if name not in ("groups", "everyday", "shared")]


def command_at(path: str) -> click.Command:
    found: click.Command = diagmem
    for name in path.split():
        assert isinstance(found, click.Group)
        made = found.get_command(click.Context(found), name)
        assert made is not None, path
        found = made
    return found


def test_all_commands_are_described() -> None:
    """Each command and each part of one has an entry, and there is none without a command."""
    assert {path.split()[0] for path in PATHS} == set(COMMANDS)


@pytest.mark.parametrize("path", PATHS)
def test_commands_take_what_is_described(path: str) -> None:
    """Every option that is described, with its help, and no argument besides those that are."""
    about, command = DESCRIBED[path], command_at(path)
    own = {flag: option for option in command.params for flag in option.opts}
    for key, given in about.get("options", {}).items():
        said = given or DESCRIBED["shared"]["options"].get(key, {})
        if key.startswith("-"):
            assert {*key.split()} <= own.keys()
            option = own[key.split()[0]]
            assert isinstance(option, click.Option)
            assert option.help == said["help"]
    assert command.help is not None
    assert command.help.split() == about["help"].split()


def test_groups_of_everyday_options_exist() -> None:
    """A parameter that `--help` shows first is one of some command."""
    names = {parameter.name for path in PATHS for parameter in command_at(path).params}
    assert {name for group in DESCRIBED["everyday"].values() for name in group} <= names
