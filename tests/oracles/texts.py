"""Codes of texts by a dictionary of Python."""

from __future__ import annotations


def number(known, texts, codes, unseen):
    """Return all known texts, and codes in which what is not coded yet has the next free one."""
    numbers = {text: code for code, text in enumerate(known)}
    given = [
        numbers.setdefault(text, len(numbers)) if code == unseen else code
        for text, code in zip(texts, codes, strict=True)
    ]
    return list(numbers), given
