"""The `hwsdk` command.

Design choice: a command is a function in a module that imports only the command-line library; what it works
with is imported inside, so that `hwsdk --help` loads neither a frontend nor code generation.
"""
