"""Finding things by the names people type: case, blanks and dashes do not matter, and a typo gets suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_SUGGESTIONS = 3


def plain(name: str) -> str:
    """A name as it is compared."""
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == "+")


def suggestions(name: str, known: Iterable[str]) -> list[str]:
    """Known names of the same family, nearest first; else those that are spelled alike. What stands behind the dash of
    a name counts as one as well: `m4`."""
    whole = {plain(one): one for one in known}
    ends = {end: one for one in whole.values() if len(end := plain(one.rpartition("-")[2])) > 1}
    by_plain = {**ends, **whole}
    asked = plain(name)
    alike = sorted(by_plain, key=lambda one: (-difflib.SequenceMatcher(None, asked, one).ratio(), one))
    family = [one for one in alike if asked and (one.startswith(asked) or asked.startswith(one) or asked in one)]
    found = family or difflib.get_close_matches(asked, by_plain, n=MOST_SUGGESTIONS, cutoff=0.6)
    return [*dict.fromkeys(by_plain[one] for one in found)][:MOST_SUGGESTIONS]


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The hint of an error about a name that is not known."""
    near = suggestions(name, known)
    return f"did you mean {' or '.join(near)}?" if near else otherwise
