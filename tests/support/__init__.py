"""Servers, factories, strategies and reference implementations that the tests of several packages use."""
