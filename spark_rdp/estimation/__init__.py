"""From locally noised values back to answers: pure mathematics, on counts and sums of what was published.

Post-processing: nothing here sees a value before its noise, and nothing is charged.
"""

from __future__ import annotations
