"""Rules from observed pairs: what would explain the differences between Old and New, with evidence (payloads §11).

Steps in order: renames, arrays, missing members, scalars; each sees the pairs through the rules before it.
"""
