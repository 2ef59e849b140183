"""Pages that a browser shows, each one file: a run's report, and parts of a comparison's.

table.py       columns of a run that figures are drawn from, thinned for the eye
figures.py     which figures a run has
charts.py      how a figure is drawn: specifications for Vega-Lite
library.py     Vega-Lite: the script that draws in a browser, and pictures in files
bands.py       several runs that differ in the seed alone, as one curve
page.py        the page itself; style.css and behaviour.js are in it
sentence.py    what was run, and how it ended, in a sentence
report.py      what stands on a run's page (a comparison's: analysis/comparison_page.py)
"""
