"""Explaining what was published: terminal tables, and one self-contained HTML page, from manifest and data files."""

from __future__ import annotations
