"""``make bench``: all measurements, one after the other."""

from benchmarks import agents, barycenters, monitors, rounds, sweeps

if __name__ == "__main__":
    rounds.main()
    agents.main()
    monitors.main([])
    barycenters.main([])
    sweeps.main()
