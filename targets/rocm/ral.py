"""The port to AMD GPUs: the HIP driver, over cupy for ROCm."""

from hwsdk.targets.gpu.hip import HipDevice, devices

__all__ = ["HipPort", "devices"]


class HipPort(HipDevice):
    """One GPU."""
