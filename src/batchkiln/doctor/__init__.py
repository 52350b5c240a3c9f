"""Whether everything is as a run needs it: checks that spend nothing."""
