"""The command line: parse, call, render, return an exit status. No decisions about money live here."""
