"""The report: HTML pages that need nothing beside them, to look at a job and to send it to somebody."""
