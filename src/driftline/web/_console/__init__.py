"""The console: a local web page over the results that commands write (`driftline ui`)."""
