"""What the rules of a field mean for a scalar (payloads §4).

A rule is a `Step`, which prepares a value, or an `End`, which decides about two prepared values of one JSON type.
`Meaning` puts the rules of a field together; the comparison, generated code, tokens and the pairing of unordered
arrays all use it, so that a rule is written once. To add one: a function in `rules.py`, its entry in
`extensions.EXTENSIONS` (and its field in `FieldRules`), and a paragraph in the guide.
"""
