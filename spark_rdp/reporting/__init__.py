"""Explaining a release: terminal tables, and one self-contained HTML page, from what was published."""

from __future__ import annotations
