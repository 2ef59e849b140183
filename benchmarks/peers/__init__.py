"""The same work in other libraries, each in an environment of its own: ``python -m
benchmarks.peers``.

work.py         what is done, and the data, which all read from one file
networks.py     the networks, which all train
bare.py         a loop over clients as a researcher writes it
ours.py         fedorch, in process and on client actors
with_pfl.py     pfl, in one process
with_flower.py  Flower's simulation, which pins a Ray release of its own
environments.py a virtual environment for each peer, which sees this one's torch
"""
