"""Hostile input for everything that reads what others wrote, for as long as it is given.

    make fuzz MINUTES=5 SEED=7

Each target is a function that takes bytes and returns, or raises an error that explains the problem
with them. Inputs are drawn from a seed, so that each can be made again by its number. `mutation`
is pure; `guard` makes memory with nothing behind it, `targets` is the table, `run` plays it.
"""
