"""Promises of docs/reliability.md, tried at random for as long as one likes."""
