"""Measurements of hwsdk beside its peers: `python -m benchmarks` lists the programs.

Design choice: everything that is compared runs in one invocation, in alternating turns, and is reported as a
ratio with its median and its best; a time alone says more about the machine's neighbours than about a program.
"""
