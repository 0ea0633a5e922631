"""Imported once by the process that all others are forked from: what a first plan would load and set up is there."""

from __future__ import annotations

from diagmem.cli.ui.jobs import Given, Job, run
from diagmem.cli.ui.switches import settings_of

SMALL = "zoo:kws_dscnn_int8"

run(Job("plan", Given(SMALL), settings_of({})), lambda name, value: None)
