"""Where models run: the interface to a device (RAL), its C form, port loading, threads, and the executable.

Design choice: running needs NumPy alone.  Nothing here imports LLVM, YAML or a frontend at import time.
"""
