"""Which described GPU is here: what drivers say, asked in a process of their own, against descriptions' conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwsdk.errors import TargetError
from hwsdk.target_desc import host as host_module
from hwsdk.target_desc.loading import resolve
from hwsdk.targets.gpu import hip

Devices = tuple[dict[str, str], ...]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Devices]:
    """A machine whose drivers list these devices."""
    found: dict[str, Devices] = {}
    monkeypatch.setattr(
        host_module, "_survey", lambda driver, module: (found.get(driver, ()), ("no driver",))
    )
    return found


def test_the_variant_is_that_of_the_device(machine: dict[str, Devices]) -> None:
    for capability, name in (
        ("7.5", "cuda-sm75"),
        ("8.0", "cuda-sm80"),
        ("8.9", "cuda-sm89"),
        ("9.0", "cuda-sm90"),
    ):
        machine["cuda"] = ({"name": "a GPU", "compute_capability": capability},)
        assert resolve("cuda").stem == name
    machine["rocm"] = ({"name": "a GPU", "arch": "gfx90a"},)
    assert resolve("rocm").stem == "rocm-gfx90a"


def test_any_of_several_devices_will_do(machine: dict[str, Devices]) -> None:
    machine["cuda"] = ({"compute_capability": "6.1"}, {"compute_capability": "8.0"})
    assert resolve("cuda").stem == "cuda-sm80"


def test_all_properties_must_be_those_of_one_device(machine: dict[str, Devices]) -> None:
    machine["dcu"] = ({"arch": "gfx906", "vendor": "AMD"}, {"arch": "gfx928", "vendor": "AMD"})
    assert resolve("dcu").stem == "dcu-gfx928"
    machine["dcu"] = ({"arch": "gfx906", "vendor": "Hygon"},)
    assert resolve("dcu").stem == "dcu-gfx906"


def test_a_device_that_no_description_fits_is_named(machine: dict[str, Devices]) -> None:
    machine["cuda"] = ({"compute_capability": "6.1"},)
    with pytest.raises(
        TargetError, match=r"cuda-sm80: it needs a device with compute_capability 8.0, here it is 6.1"
    ):
        resolve("cuda")


def test_no_device_says_what_is_missing(machine: dict[str, Devices]) -> None:
    with pytest.raises(
        TargetError, match="a device of the driver 'cuda', and none was found here: no driver"
    ):
        resolve("cuda")


def port_folder(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "pretend"
    folder.mkdir()
    (folder / "ral.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "devices", "missing"),
    [
        ("def devices(): return [{'arch': 'x1'}]", ({"arch": "x1"},), ()),
        ("def missing(): return ['no cable']", (), ("no cable",)),
        ("", (), ()),
        ("import os; os.abort()", (), ("the driver cannot be asked",)),
        ("def devices(): raise ValueError('it smokes')", (), ("it smokes",)),
        (
            "import no_such_module",
            (),
            ("port module 'ral' cannot be imported: No module named 'no_such_module'",),
        ),
    ],
)
def test_a_port_is_asked_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, devices: Devices, missing: tuple[str, ...]
) -> None:
    port_folder(tmp_path, text)
    monkeypatch.setenv("HWSDK_TARGET_PATH", str(tmp_path))
    assert host_module._survey.__wrapped__("pretend", "ral") == (devices, missing)


def test_only_installed_folders_are_asked(tmp_path: Path) -> None:
    port_folder(tmp_path, "def devices(): return [{'arch': 'x1'}]")
    devices, missing = host_module._survey.__wrapped__(str(tmp_path / "pretend"), "ral")
    assert devices == ()
    assert "not a plain name inside a target folder" in missing[0]


def test_devices_of_the_system_files(tmp_path: Path) -> None:
    for number, (version, vendor) in enumerate(((0, 0), (90010, 0x1002), (110000, 0x1002), (90006, 0x1D94))):
        node = tmp_path / str(number)
        node.mkdir()
        (node / "properties").write_text(
            f"cpu_cores_count 8\ngfx_target_version {version}\nvendor_id {vendor}\n"
        )
        (node / "name").write_text(f"chip {number}\n")
    assert hip.devices(tmp_path) == [
        {"name": "chip 1", "arch": "gfx90a", "vendor": "AMD"},
        {"name": "chip 2", "arch": "gfx1100", "vendor": "AMD"},
        {"name": "chip 3", "arch": "gfx906", "vendor": "Hygon"},
    ]
    assert hip.devices(tmp_path / "nothing") == []
