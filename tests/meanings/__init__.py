"""The battery of meanings: what a composition computes, held against a slow and readable model of it.

``model`` is that model: one client after the other, messages as dicts, the order of a message written
once more. It shares nothing with the product but the rows of the data, the initial weights, and the
keyed generators, whose keys are written out again. ``networks``, ``client``, ``channel`` and
``server`` are what it is made of; ``compositions`` draws what is compared, ``comparison`` compares.
"""
