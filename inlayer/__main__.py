"""`python -m inlayer` is the command line."""

from inlayer.cli import main

main()
