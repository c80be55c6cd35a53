"""The suite that a port must pass: levels, references, tolerances, reports.

Design choice: a case is plain data plus one function; the runner needs no test framework, and pytest collects
the same cases (`hwsdk.conformance.pytest_cases`).
"""
