"""`python -m hwsdk`: the same command without the console script."""

from hwsdk.cli.main import entry

entry()
