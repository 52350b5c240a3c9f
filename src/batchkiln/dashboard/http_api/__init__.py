"""The HTTP interface below `/api/v1`: the commands for other programs, with tokens, scopes and a description."""
