"""What a plan of a finite domain says of the tight-constraints mechanism, in words."""

from __future__ import annotations

from spark_rdp.planning.plan import Plan
from spark_rdp.reporting.words import number


def existence_facts(plan: Plan) -> list[tuple[str, str]]:
    """Label and text of each fact."""
    facts = plan.facts
    start = facts["threshold_epsilon"]
    exists = "exists here" if facts["exists"] else "does not exist here"
    if start is not None:
        exists += "; it always does" if start == 0 else f"; it does from epsilon {start:.6f} on"
    rows = [("tight-constraints mechanism", exists), ("least entry of z", number(facts["min_diagonal"]))]
    prior = facts.get("prior")
    if prior is not None:
        rows.append(("prior", "regular" if prior["regular"] else "not regular: another mechanism may be better"))
        rows.append(("right under it", f"{prior['utility']:.4f}, {prior['remapped_utility']:.4f} after the best guess"))
        rows.append(("at most under it", f"{prior['utility_bound']:.4f}"))
        if prior["information_bound"] is not None:
            rows.append(("min-mutual information", f"at most {prior['information_bound']:.4f} bits"))
    return rows
