"""What our own parts have to pass, for anybody's: ``fedorch check FILE``."""
