"""The port to Hygon DCUs: their toolkit's HIP driver, over cupy for it."""

from dataclasses import replace

from hwsdk.targets.gpu.hip import DRIVER, HipDevice, devices

__all__ = ["DcuPort", "devices"]


class DcuPort(HipDevice):
    """One DCU."""

    driver = replace(DRIVER, name="DCU", package="cupy of the vendor's toolkit (DTK)")
