"""``make bench``: all measurements, one after the other."""

from benchmarks import agents, monitors, rounds

if __name__ == "__main__":
    rounds.main()
    agents.main()
    monitors.main([])
