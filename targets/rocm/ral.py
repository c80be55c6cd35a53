"""The port to AMD GPUs: the HIP driver, over cupy for ROCm."""

from hwsdk.targets.gpu import driver
from hwsdk.targets.gpu.hip import DRIVER, HipDevice, devices

__all__ = ["HipPort", "devices", "missing"]


class HipPort(HipDevice):
    """One GPU."""


def missing() -> list[str]:
    """What keeps this port from running here, in sentences."""
    return driver.missing(DRIVER)
