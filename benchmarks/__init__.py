"""Measurements: each compares with a bare PyTorch loop in the same run and prints ratios."""
