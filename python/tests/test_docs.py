"""Runs the examples in the documentation. The examples of a document form one program."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "python/README.md", *sorted((ROOT / "docs/src").glob("python*.md"))]
# Examples that need more than PyTorch begin with "```python,ignore" and are skipped.
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program(document):
    """Returns the code blocks of a document as a program with the document's line numbers."""
    text = document.read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        block = block[1].splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_examples_run(document):
    code = program(document)
    assert code.strip()
    exec(compile(code, document, "exec"), {"__name__": document.stem})
