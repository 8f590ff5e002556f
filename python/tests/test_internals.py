"""Private names of torch and torchvision stand in two modules, which say for which versions they were tested."""

import ast
import pathlib

import slotline.torch

FOLDER = pathlib.Path(slotline.torch.__file__).parent
ALLOWED = {FOLDER / "_internals.py", FOLDER / "_lift" / "internals.py"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def used(tree):
    """Yields the private names of torch and torchvision that a module uses."""
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {(name.asname or name.name).split(".")[0] for name in node.names if name.name.startswith("torch")}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            is_own = node.module.startswith("slotline.torch") and node.module.endswith("internals")
            if node.module.startswith("torch") or is_own:
                roots |= {name.asname or name.name for name in node.names}
            if node.module.startswith("torch"):
                yield from filter(is_private, [*node.module.split("."), *(name.name for name in node.names)])
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in roots:
                yield node.attr


def test_private_names_stand_in_two_modules():
    files = set(FOLDER.rglob("*.py"))
    found = {file: sorted(set(used(ast.parse(file.read_text())))) for file in files}
    assert ALLOWED < files and all(found[file] for file in ALLOWED)
    assert {str(file): names for file, names in found.items() if names and file not in ALLOWED} == {}
