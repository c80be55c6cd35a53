"""What kernels take of a GPU: read from its code objects."""

from hwsdk.targets.gpu.code_object import read

__all__ = ["read"]
