"""Statuses, waivers, launch counting, reports and exit verdicts of the suite itself."""

from __future__ import annotations

import datetime
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from hwsdk.conformance import report, runner, waivers
from hwsdk.conformance.model import Case, Mismatch, Outcome, Session, Unsupported
from hwsdk.errors import DescriptionError, HwsdkError, InputError
from tests.conformance.interpreter_device import InterpreterDevice

TODAY = datetime.date(2026, 6, 1)


def _launching(session: Session) -> None:
    session.device.launches += 1


def _wrong(session: Session) -> None:
    _launching(session)
    raise Mismatch("3 elements differ")


def _cannot(session: Session) -> None:
    raise Unsupported("no such unit")


def _breaks(session: Session) -> None:
    raise ZeroDivisionError("oops")


def outcome(run: object, waiver: waivers.Waiver | None = None, on_device: bool = True) -> Outcome:
    case = Case("L3", "case", run, on_device)  # type: ignore[arg-type]
    return runner.run_one(case, Session(InterpreterDevice()), waiver, TODAY)


EXPECTED = waivers.Waiver("L3/*", "expected_failure", "bug 7", datetime.date(2026, 12, 31))
EXPIRED = waivers.Waiver("L3/*", "expected_failure", "bug 7", datetime.date(2026, 1, 31))
NEVER = waivers.Waiver("L3/*", "unsupported", "no unit for it")


@pytest.mark.parametrize(
    "run, waiver, status, conformant",
    [
        (_launching, None, "pass", True),
        (_wrong, None, "fail", False),
        (_cannot, None, "unsupported", True),
        (_breaks, None, "fail", False),
        (lambda session: None, None, "not_run", False),
        (_launching, EXPECTED, "unexpected_pass", False),
        (_launching, NEVER, "unexpected_pass", False),
        (_wrong, EXPECTED, "expected_failure", True),
        (_wrong, EXPIRED, "fail", False),
        (_wrong, NEVER, "unsupported", True),
    ],
)
def test_statuses(run: object, waiver: waivers.Waiver | None, status: str, conformant: bool) -> None:
    got = outcome(run, waiver)
    assert (got.status, got.conformant) == (status, conformant)
    assert got.reason or status == "pass"


def test_an_expired_expectation_says_so() -> None:
    assert "expired on 2026-01-31" in outcome(_wrong, EXPIRED).reason


def test_cases_beside_the_device_need_no_launch() -> None:
    assert outcome(lambda session: None, on_device=False).status == "pass"


def test_nothing_run_is_not_conformant() -> None:
    assert not runner.conformant([])
    assert not runner.conformant([outcome(_cannot)])
    assert runner.conformant([outcome(_cannot), outcome(_launching)])


def test_selection() -> None:
    cases = [
        Case("L1", "alloc", _launching),
        Case("L3", "add-f32", _launching),
        Case("L3", "add-i64", _launching),
    ]
    assert [c.name for c in runner.select(cases, ["L3"])] == ["add-f32", "add-i64"]
    assert [c.name for c in runner.select(cases, [], "*-i64,alloc")] == ["alloc", "add-i64"]
    assert runner.known_levels("l1, L3") == ["L1", "L3"]
    with pytest.raises(InputError, match="L9"):
        runner.known_levels("L9")


def test_interrupt_stops_the_run() -> None:
    def interrupted(session: Session) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run([Case("L3", "case", interrupted)], InterpreterDevice())


@pytest.mark.parametrize(
    "text, message",
    [
        ("case: 1", "list of waivers"),
        ("- {case: a, status: unsupported}", "has case, status, reason"),
        ("- {case: a, status: skip, reason: b}", "status must be"),
        ("- {case: a, status: expected_failure, reason: b}", "needs `expires`"),
        ("- {case: a, status: expected_failure, reason: b, expires: soon}", "a date such as"),
        ("- {case: a, status: unsupported, reason: b, until: 3}", "has case, status, reason"),
        ("- [1, 2]", "has case, status, reason"),
        ("- {case: a", "cannot be read"),
    ],
)
def test_bad_waivers(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "waivers.yaml"
    file.write_text(text)
    with pytest.raises(DescriptionError, match=message) as caught:
        waivers.load(file)
    assert str(file) in str(caught.value)


def test_waiver_file(tmp_path: Path) -> None:
    file = tmp_path / "waivers.yaml"
    file.write_text("- {case: 'L3/sort-*', status: expected_failure, reason: slow, expires: 2027-01-31}\n")
    (waiver,) = waivers.load(file)
    assert waiver.covers("L3/sort-f32")
    assert not waiver.covers("L3/add-f32")
    assert waivers.find((waiver,), "L3/sort-i8") == waiver


def test_report(tmp_path: Path) -> None:
    device = InterpreterDevice()
    outcomes = [outcome(_launching), outcome(_wrong), outcome(_cannot), outcome(_wrong, EXPECTED)]
    data = report.document(device, outcomes, ["L3"])
    written = report.write(data, tmp_path / "out")
    assert sorted(p.name for p in written) == ["junit.xml", "report.json", "report.md"]
    assert json.loads(written[0].read_text())["conformant"] is False
    text = (tmp_path / "out" / "report.md").read_text()
    for part in ("NOT conformant", "3 elements differ", "no such unit", "bug 7", "| L3 |"):
        assert part in text
    suite = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "2")
    assert report.read(tmp_path / "out") == json.loads(written[0].read_text())
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}'])
def test_damaged_report(tmp_path: Path, text: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(HwsdkError, match=r"report"):
        report.read(file)
