"""The tables and figures of FedAA.

A table that stacks its datasets is one entry for each of them, because model, data and what can be
reduced differ; one that has its datasets side by side keeps them as columns.

What the paper leaves open, and how it is read here:

- Tables 1, 4, 7, 9 and 11 name no attack. Their FedAA cells recur in Tables 6 to 8, mostly in those
  for 30 % same-value attackers, so that is what they run. Table 3 has nothing to go by: 20 %, as in
  ``examples/fedaa``. Figure 4: none.
- Table 8's row Global is taken for FedAA's own aggregated model, and stands in the columns ``…
  global``. FedAvg's numbers are printed in the accuracy columns as in the paper, and once more
  there, where they seem to belong.
- Figure 1 does not say in words which dataset is under which attack; the pairs here are those that
  its text fits. Figure 2 names neither: CIFAR-10, 20 % same-value attackers.
- FedAvg weights clients by their samples, as the paper has it; its row without is beside it. Ditto
  trains two models, each with the others' local steps, as its own paper has it. With equal steps it
  is in ``fedaa/agent-mnist``, which is an entry of our own.
- Rounds are the published code's 200. λ of Ditto and lp-proj is not given; ours
  are the best of three by test accuracy, and the tables say so.
"""

from __future__ import annotations

from sweeps.entry import Entry
from sweeps.papers.fedaa.agents import AGENTS_COMPARED
from sweeps.papers.fedaa.figures import FIGURES
from sweeps.papers.fedaa.tables import TABLES

ENTRIES: tuple[Entry, ...] = (*TABLES, *FIGURES, *AGENTS_COMPARED)
