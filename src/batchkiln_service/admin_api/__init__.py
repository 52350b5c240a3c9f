"""The operator's API, on loopback only: the report, fault rules at run time, and the end of stuck generations."""
