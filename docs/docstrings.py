"""Docstrings as the reference shows them (an extension of griffe, which reads the source).

Examples become blocks of code. Fields of a class become one list: those with a string below them,
and those with a comment beside them, as `costs: FloatArray  # [K], increasing`.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> (?:.+\n?)+", re.MULTILINE)
COMMENT = re.compile(r"  # (?!noqa|type:)(.+)$")


class Docstrings(griffe.Extension):
    """Changes docstrings as they are loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Puts examples between fences."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Lists the fields of a class in its docstring, and no more below it."""
        told, listed = "", cls.docstring.value if cls.docstring is not None else ""
        for name, attribute in cls.attributes.items():
            about = _about(attribute)
            is_listed = re.search(rf"^ +([\w*]+, )*{name}\b.*: ", listed, re.MULTILINE)
            if about and not name.startswith("_") and not is_listed:
                told += f"\n    {name}: {about}"
            attribute.docstring = None
        for name in ("__init__", "__post_init__"):
            if name in cls.members:
                cls.members[name].docstring = None
        if told and cls.docstring is not None:
            cls.docstring.value += f"\n\nAttributes:{told}\n"


def _fenced(match: re.Match[str]) -> str:
    """An example as a block of code, without remarks that are for the tests."""
    lines = re.sub(r"  # doctest:.*", "", match[0]).rstrip("\n")
    return f"{match[1]}```pycon\n{lines}\n{match[1]}```\n"


def _about(attribute: griffe.Attribute) -> str:
    """The first paragraph about a field, in one line."""
    if attribute.docstring is not None:
        return " ".join(attribute.docstring.value.split("\n\n")[0].split())
    if not attribute.lineno or attribute.filepath is None:
        return ""
    lines = attribute.lines_collection[attribute.filepath]  # type: ignore[index]
    comment = COMMENT.search(lines[(attribute.endlineno or attribute.lineno) - 1])
    return comment[1] if comment else ""
