"""The LoopIR machine with lanes inside a workgroup: values, and every way to get them wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.codegen.loop_parse import parse_kernel
from hwsdk.codegen.loop_verify import verify_kernel
from hwsdk.errors import CodegenError, SimulationError
from hwsdk.sim.machine import run
from hwsdk.sim.stats import Stats
from hwsdk.target_desc import load_target

CHIP = load_target(str(Path(__file__).with_name("lanes.yaml")))
TEAM = 32  # lanes of a team in these kernels: two squads of 16


def kernel(body: str, params: str = "param x: f32[n] in big\n  param y: f32[n] in big out") -> LoopKernel:
    """A kernel over teams of two squads; `t` is the number of a lane in its team, `e` in the launch."""
    text = f"""kernel k {{
  {params}
  dim n
  parallel(team) g < ceildiv(n, 32) {{
    BEFORE
    parallel(squad) w < 2 {{
      parallel(member) l < 16 {{
        let t: i64 = index(16*w + l):i64
        let e: i64 = index(32*g + t):i64
        {body}
      }}
    }}
  }}
}}"""
    before, _, rest = body.partition("---")
    text = text.replace(body, rest).replace("BEFORE", before) if rest else text.replace("    BEFORE\n", "")
    return parse_kernel(text)


def launch(
    k: LoopKernel, n: int = 64, y: np.ndarray | None = None, **more: np.ndarray
) -> tuple[np.ndarray, Stats]:
    x = np.arange(n, dtype=np.float32)
    y = np.zeros(n, np.float32) if y is None else y
    stats = run(k, CHIP, {"x": x, "y": y, **more}, {"n": n})
    return y, stats


ROUND = """alloc s: f32[32] in local
    ---
        s[t] = x[e]
        sync gather
        y[e] = s[31 - t]"""


def test_lanes_meet_in_the_scratchpad() -> None:
    y, stats = launch(kernel(ROUND), 96)
    np.testing.assert_array_equal(y.reshape(3, 32), np.arange(96, dtype=np.float32).reshape(3, 32)[:, ::-1])
    assert stats.iterations == 3
    assert stats.places["local"].peak_bytes == 128
    assert stats.places["big"].read_bytes == 96 * 4
    assert stats.bound_by
    assert not any(stats.unwritten.values())


def test_branches_and_loops_run_under_masks() -> None:
    body = """let turns: i64 = index(e % 5):i64
        alloc a: f32[1] in file
        a[0] = 0:f32
        for i < turns {
          a[0] = a[0] + 1:f32
        }
        if turns > 2:i64 {
          y[e] = a[0]
        } else {
          y[e] = -1:f32
        }"""
    y, _ = launch(kernel(body))
    turns = np.arange(64) % 5
    np.testing.assert_array_equal(y, np.where(turns > 2, turns, -1))


def test_lanes_that_do_not_act_touch_nothing() -> None:
    body = """if index(e):i64 < index(n):i64 {
          y[e] = x[e]
        }"""
    y, _ = launch(kernel(body), 45)
    np.testing.assert_array_equal(y, np.arange(45))


def test_an_exchange_reads_the_registers_of_other_lanes() -> None:
    body = """alloc a: f32[1] in file
        alloc b: f32[1] in file
        a[0] = x[e]
        use swap(d = &b[0], x = &a[0], s = 3)
        y[e] = b[0]"""
    y, stats = launch(kernel(body))
    np.testing.assert_array_equal(y, np.arange(64) ^ 3)
    assert stats.units["mover"].intrinsics == {"swap": 4}


def test_a_tile_of_a_squad_is_a_matrix_product() -> None:
    body = """alloc a: f16[1] in file
        alloc b: f16[2] in file
        alloc c: f32[2] in file
        alloc d: f32[2] in file
        a[0] = p[4*(l//4) + l%4]
        unroll i < 2 {
          b[i] = q[8*(l%4) + 2*(l//4) + i]
          c[i] = 0:f32
        }
        use multiply(d = &d[0], c = &c[0], a = &a[0], b = &b[0])
        if index(w):i64 == 0:i64 {
          unroll i < 2 {
            y[8*(l//4) + 2*(l%4) + i] = d[i]
          }
        }"""
    params = "param p: f16[16] in big\n  param q: f16[32] in big\n  param y: f32[n] in big out"
    rng = np.random.default_rng(0)
    p, q = (rng.standard_normal(s).astype(np.float16) for s in ((4, 4), (4, 8)))
    y = np.zeros(32, np.float32)
    run(kernel(body, params), CHIP, {"p": p.reshape(-1), "q": q.reshape(-1), "y": y}, {"n": 32})
    np.testing.assert_allclose(y.reshape(4, 8), p.astype(np.float32) @ q.astype(np.float32), rtol=1e-6)


COPY = """alloc s: f32[128] in local align 16
    ---
        use send_16(dst = &s[4*t], src = &x[4*t])
        sync close
        sync land
        sync gather
        y[e] = s[127 - t]"""
BYTES = "param x: u8[512] in big\n  param y: u8[n] in big out"


def copies(*lines: str) -> LoopKernel:
    """Two halves of a ring are sent ahead; `lines` say what happens then."""
    head = """alloc s: u8[1024] in local align 16
    ---
        use send_16(dst = &s[16*t], src = &x[16*t])
        sync close
        use send_16(dst = &s[16*t + 512], src = &x[16*t])
        sync close
        """
    return kernel(head + "\n        ".join(lines), BYTES)


def send(k: LoopKernel) -> np.ndarray:
    x, y = np.arange(512, dtype=np.int64).astype(np.uint8), np.zeros(32, np.uint8)
    run(k, CHIP, {"x": x, "y": y}, {"n": 32})
    return y


def test_copies_arrive_at_their_wait() -> None:
    k = copies("sync land pending 1", "sync gather", "y[t] = s[511 - t]", "sync land")
    np.testing.assert_array_equal(send(k), (511 - np.arange(32)).astype(np.uint8))


FAULTS = {
    "removed barrier": (ROUND.replace("sync gather\n        ", ""), "race: lane 0 reads s[31], which lane 31 wrote"),
    "overwritten before the others have read": (
        ROUND + "\n        s[t] = 1:f32", "race: lane 0 writes s[0], which lane 31 read"
    ),
    "scratchpad that nobody filled": (ROUND.replace("s[t] = x[e]\n        ", ""), "s[31] is read before anything was"),
    "one element too far": (ROUND.replace("s[31 - t]", "s[32 - t]"), "out of bounds: index 32 of axis 0 of s"),
    "missing guard": ("y[e] = x[e + 1]", "out of bounds: index 64 of axis 0 of x is outside 0..63 in lane 63"),
    "two lanes store to one element": ("y[32*g] = x[e]", "race: two lanes write y[0] in one statement"),
    "teams meet in memory": ("y[(e + 16) % n] = x[e]\n        y[e] = x[e]", "race: lane"),
    "scratchpad too small": (ROUND.replace("f32[32]", "f32[8192]"), "s does not fit: 32768 bytes of local are in use"),
    "register that holds nothing": ("alloc a: f32[2] in file\n        y[e] = a[1]", "a[1] is read before anything"),
    "part of a squad at an exchange": (
        """alloc a: f32[1] in file
        a[0] = x[e]
        let far: f32 = x[e]
        if far > 3:f32 {
          use swap(d = &a[0], x = &a[0], s = 1)
        }
        y[e] = a[0]""",
        "lanes of one squad may take different ways here, and swap needs all of them",
    ),
    "barrier that some lanes never reach": (
        ROUND.replace("sync gather", "if index(t):i64 < 7:i64 {\n          sync gather\n        }"),
        "lanes of one team may take different ways here, and gather needs all of them",
    ),
    "barrier that some squads never reach": (
        ROUND.replace("sync gather", "for i < w {\n          sync gather\n        }"),
        "lanes of one team may take different ways here",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_caught(name: str) -> None:
    body, message = FAULTS[name]
    with pytest.raises((SimulationError, CodegenError)) as caught:
        launch(kernel(body))
    assert message in str(caught.value)
    assert "kernel k" in str(caught.value)


COPY_FAULTS = {
    "late wait": (("sync gather", "y[t] = s[511 - t]", "sync land"), "while an asynchronous copy to it"),
    "one group too few": (
        ("sync land pending 1", "sync gather", "y[t] = s[1023 - t]", "sync land"), "while an asynchronous copy to it"
    ),
    "waited for, but not met": (
        ("sync land", "y[t] = s[511 - t]"), "race: lane 0 reads s[511], which lane 31 wrote"
    ),
    "overwritten in flight": (("s[16*t] = 0:u8", "sync land"), "is written while an asynchronous copy of it"),
    "nobody waits": (("sync gather",), "ends while asynchronous copies were not waited for"),
    "address of a copy not aligned": (
        ("use send_16(dst = &s[16*t + 8], src = &x[0])", "sync land"), "is not aligned to 16 bytes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COPY_FAULTS)
def test_planted_faults_of_copies_are_caught(name: str) -> None:
    lines, message = COPY_FAULTS[name]
    with pytest.raises(SimulationError) as caught:
        send(copies(*lines))
    assert message in str(caught.value)


def conflicts(step: int) -> float:
    """Predicted cycles of a kernel whose lanes read the scratchpad at a distance of `step` words."""
    body = f"""alloc s: f32[512] in local
    ---
        unroll i < 16 {{
          s[32*i + t] = x[e]
        }}
        sync gather
        alloc a: f32[1] in file
        a[0] = 0:f32
        unroll i < 16 {{
          a[0] = a[0] + s[({step}*t + i) % 512]
        }}
        y[e] = a[0]"""
    return launch(kernel(body), 32)[1].cycles


def test_bank_conflicts_cost_turns() -> None:
    assert conflicts(16) > 5 * conflicts(1)


def test_scattered_lanes_move_whole_granules() -> None:
    near, far = (launch(kernel(f"y[e] = x[({step}*e) % n]"), 1024)[1].places["big"] for step in (1, 33))
    assert near.read_bytes == far.read_bytes
    assert far.moved_bytes > 3 * near.moved_bytes


NESTS = {
    "statement beside the lanes": (
        "parallel(squad)",
        "y[0] = 0:f32\n    parallel(squad)",
        "only let and alloc",
    ),
    "level order": (
        "parallel(squad) w < 2",
        "parallel(member) w < 2",
        "level member is not inside level member",
    ),
    "extent known only at run time": ("w < 2", "w < n", "needs a constant extent"),
}


@pytest.mark.parametrize("name", NESTS)
def test_how_loops_of_a_workgroup_nest(name: str) -> None:
    from hwsdk.codegen.loop_print import print_kernel

    old, new, message = NESTS[name]
    text = print_kernel(kernel("y[e] = x[e]")).replace(old, new, 1)
    with pytest.raises(CodegenError) as caught:
        verify_kernel(parse_kernel(text), CHIP)
    assert message in str(caught.value)
