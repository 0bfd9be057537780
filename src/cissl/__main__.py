"""`python -m cissl` is the command line."""

from cissl.cli import main

main()
