"""The `x-migration-*` extensions of a schema, the rules that paths name, and what each means for a scalar."""
