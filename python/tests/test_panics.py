"""A panic in the package is raised as an exception of the package."""

import re
from pathlib import Path

import pytest

import slotline
from slotline import _slotline

SOURCES = Path(__file__).parents[1] / "src"


def test_a_panic_is_an_error_of_slotline(capfd):
    with pytest.raises(slotline.Error, match="slotline has a defect: the wheel came off; please report it"):
        _slotline.panic_on_purpose("the wheel came off")
    assert "the wheel came off" in capfd.readouterr().err


def test_all_functions_are_shielded():
    found = 0
    for path in SOURCES.rglob("*.rs"):
        for before in re.findall(r"([^\n]*)\n#\[py(?:methods|function)", path.read_text()):
            found += 1
            assert before == "#[shielded]", path
    assert found > 15
