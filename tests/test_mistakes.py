"""`make mistakes` can still put in what it is made of: the source that each mistake replaces is there."""

from pathlib import Path

import pytest
from mistakes import MISTAKES

import cissl

SOURCE = Path(cissl.__file__).parent


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_what_a_mistake_replaces_stands_once_in_its_file(mistake):
    assert (SOURCE / mistake.file).read_text(encoding="utf-8").count(mistake.right) == 1
    assert mistake.wrong != mistake.right
