"""What a kernel of lanes takes, predicted from its loops: registers by hand-counted kernels, limits, residency."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hwsdk.codegen.footprint import footprint, overflow
from hwsdk.codegen.lives import peak_words
from hwsdk.codegen.loop_ir import LoopKernel
from hwsdk.codegen.loop_parse import parse_kernel
from hwsdk.target_desc import load_target
from hwsdk.target_desc.model import Memory, Target

CHIP = load_target(str(Path(__file__).with_name("lanes.yaml")))
AHEAD = replace(CHIP, codegen=replace(CHIP.codegen, ahead_bytes=40))


def kernel(body: str, before: str = "") -> LoopKernel:
    body = body.replace("{ ", "{\n")
    return parse_kernel(f"""kernel k {{
  param x: f32[n] in big
  param y: f32[n] in big out
  dim n
  parallel(team) g < ceildiv(n, 32) {{
    {before}
    parallel(squad) w < 2 {{
      parallel(member) l < 16 {{
        {body}
      }}
    }}
  }}
}}""")


def words(body: str, target: Target = CHIP, before: str = "") -> int:
    return peak_words(kernel(body, before), target)


def filled(name: str, count: int) -> str:
    return f"alloc {name}: f32[{count}] in file\nunroll i < {count} {{ {name}[i] = 1:f32 \n}}\n"


def stored(*names: str) -> str:
    return "".join(f"y[l] = {name}[0]\n" for name in names)


EMPTY = words(filled("a", 1) + stored("a")) - 1


def test_buffers_that_live_one_after_the_other_share_registers() -> None:
    apart = words(filled("a", 20) + stored("a") + filled("b", 30) + stored("b"))
    together = words(filled("a", 20) + filled("b", 30) + stored("a", "b"))
    assert (apart, together) == (EMPTY + 30, EMPTY + 50)


def test_elements_are_packed_where_they_are_used_together() -> None:
    one = words("alloc a: f16[16] in file\nunroll i < 16 { a[i] = 1:f16 \n}\ny[l] = f32(a[0])")
    pairs = words(
        "alloc a: f16[16] in file\nunroll i < 8 { vector v < 2 { a[2*i + v] = 1:f16 \n}\n}\ny[l] = f32(a[0])"
    )
    assert one - pairs == 8


def test_what_a_loop_does_not_change_is_kept_over_it() -> None:
    loop = "for j < n { alloc b: f32[10] in file\nunroll i < 10 { b[i] = 2:f32 \n}\ny[j] = b[0] + b[9]\n}\n"
    alone, a = words(loop), filled("a", 20)
    assert words(a + loop + stored("a")) - alone in (
        20,
        21,
    )  # one for the place in which y is written behind it
    assert words(a + loop.replace("b[0]", "a[0]")) == alone + 20
    assert words(a + stored("a") + loop) == max(alone, EMPTY + 20)


def test_values_and_addresses_are_counted() -> None:
    def sums(count: int) -> int:
        lets = "".join(f"let v{i}: f32 = x[{i}*n + l*l]\n" for i in range(count))
        return words(lets + "sync gather\n" + "".join(f"y[l] = v{i}\n" for i in range(count)))

    assert sums(12) - sums(2) == 10
    assert words("y[n*l] = x[l]") - words("y[l] = x[l]") in (0, 2)


def walk(count: int) -> str:
    fill = "alloc b: f32[4] in file\nvector v < 4 { b[v] = x[4*j + v] \n}\n"
    return f"for j < {count} {{ {fill}y[l + j] = b[0] + b[3]\n}}\n"


def test_loads_of_an_unrolled_loop_wait_together_as_far_as_there_is_room() -> None:
    plain = words(walk(16))
    assert words(walk(16), AHEAD) == plain + 8  # two iterations more in 40 bytes
    assert words(walk(2), AHEAD) == plain + 4
    assert words(walk(16).replace("y[l + j]", "sync gather\ny[l + j]"), AHEAD) == plain
    assert words(walk(16).replace("< 16", "< n"), AHEAD) == plain
    assert peak_words(kernel(walk(16)), AHEAD, ahead=False) == plain


def test_what_all_lanes_agree_on_is_free_where_it_has_registers_of_its_own() -> None:
    own = replace(
        CHIP, memories=(*CHIP.memories, Memory("one", "registers", "squad", count=64, width_bytes=4))
    )
    lets = "".join(f"let v{i}: f32 = x[{i} + g]\n" for i in range(9))
    shown = "".join(f"y[l] = v{i}\n" for i in range(9))
    assert words(lets + shown) - words(lets + shown, own) >= 9
    apart = lets.replace("+ g", "+ l")
    assert words(apart + shown) - words(apart + shown, own) < 9


@pytest.mark.parametrize(
    ("body", "before", "why"),
    [
        (filled("a", 200) + stored("a"), "", r"20\d file for each of 32 lanes, of which one has 128"),
        ("s[l] = 1:f32", "alloc s: f32[5000] in local", "20096 bytes of local, of which a team has 16384"),
        (filled("a", 60) + stored("a"), "alloc s: f32[4096] in local", ""),
    ],
)
def test_what_does_not_fit_is_named(body: str, before: str, why: str) -> None:
    assert re.fullmatch(why, overflow(kernel(body, before), CHIP))


def test_too_many_lanes_are_named() -> None:
    wide = parse_kernel(
        "kernel k {\n param y: f32[9] in big out\n parallel(team) g < 1 {\n parallel(squad) w < 5 {\n"
        "parallel(member) l < 16 {\n y[l] = 1:f32\n}\n}\n}\n}"
    )
    assert overflow(wide, CHIP) == "80 lanes, of which a team has 64"


def shared(**pools: int) -> Target:
    """The chip with pools of registers (`file`) and scratchpad (`local`) that the teams of an engine share."""
    memories = (
        replace(m, pool_bytes_per={"engine": pools[m.name]}) if m.name in pools else m for m in CHIP.memories
    )
    levels = (
        replace(x, resident={"team": 12, "squad": 16}) if x.name == "engine" else x for x in CHIP.levels
    )
    return replace(CHIP, memories=tuple(memories), levels=tuple(levels))


def test_workgroups_on_a_core_are_what_the_scarcest_thing_allows() -> None:
    small, padded = kernel(filled("a", 1) + stored("a")), kernel("s[l] = 1:f32", "alloc s: f32[256] in local")
    taken = footprint(small, CHIP).registers
    assert footprint(small, CHIP).resident is None
    assert footprint(small, shared()).resident == 8  # squads: 16 of 2
    assert footprint(small, shared(file=3 * 32 * taken * 4)).resident == 3
    assert footprint(padded, shared(local=5 * 1024)).resident == 5
    full = footprint(kernel(filled("a", 200) + stored("a")), shared(file=32 * 64 * 4))
    assert (full.registers, full.resident) == (64, 1)  # code takes no more than there are
