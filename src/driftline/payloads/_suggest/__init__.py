"""Rules from observed pairs: what would explain the differences between Old and New, with evidence (payloads §11)."""
