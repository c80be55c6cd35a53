"""Which folders become which packages.  Everything else about the project is in pyproject.toml.

`targets/` and `conformance/` live at the top of the repository for the people who edit them and install as
`hwsdk.targets` and `hwsdk.conformance`.  In a checkout (editable install or PYTHONPATH=.) the package finds
them beside its own folder.
"""

from setuptools import find_namespace_packages, setup

MAPPED = ("targets", "conformance")


def packages() -> list[str]:
    """Every folder below hwsdk/ and the mapped ones, data folders included."""
    skip = ["*__pycache__*"]
    found = list(find_namespace_packages(".", include=["hwsdk", "hwsdk.*"], exclude=skip))
    for top in MAPPED:
        found += [f"hwsdk.{p}" for p in find_namespace_packages(".", include=[top, f"{top}.*"], exclude=skip)]
    return found


setup(
    packages=packages(),
    package_dir={f"hwsdk.{top}": top for top in MAPPED},
    package_data={"": ["*.yaml", "*.json", "*.ll", "*.h", "*.c", "*.md", "*.txt", "*.j2", "py.typed"]},
)
