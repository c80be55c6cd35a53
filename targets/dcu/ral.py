"""The port to Hygon DCUs: their toolkit's HIP driver, over cupy for it."""

from dataclasses import replace

from hwsdk.targets.gpu import driver
from hwsdk.targets.gpu.hip import DRIVER, HipDevice, devices

__all__ = ["DcuPort", "devices", "missing"]

_DRIVER = replace(DRIVER, name="DCU", install="install the one of the vendor's toolkit (DTK)")


class DcuPort(HipDevice):
    """One DCU."""

    driver = _DRIVER


def missing() -> list[str]:
    """What keeps this port from running here, in sentences."""
    return driver.missing(_DRIVER)
