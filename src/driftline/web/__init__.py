"""The pages and HTTP services that `driftline serve` offers."""
