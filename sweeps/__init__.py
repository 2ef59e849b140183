"""Ray Tune over experiments, and the papers' tables and figures made with it.

A sweep: spaces (what varies), plan (the sweep as a config), choice (what one trial computes),
draws (the grid and the random axes as Tune has them), trainable and data (a trial as Tune has it,
with datasets once a node), runner, watch and status (running it, and saying how it goes), reuse and
tune_state (what need not be run again, or cannot go on), home (where its files are), results and
statistics (reading it).

A paper's table or figure: entry (as data), papers (all of them), reproduction and tuning (at a
budget, as one or two sweeps), claims and rules (what the paper says of the numbers), efforts (what
the methods were given), tables and figures (beside the published ones), costs (how long it took
here).

The command: cli, targets (what is run and shown: a file's sweep or a paper's entry), commands.
"""
