"""``make bench``: all measurements, one after the other."""

from benchmarks import rounds

if __name__ == "__main__":
    rounds.main()
