"""`python -m diagmem`: the command line."""

from diagmem.cli import main

main()
