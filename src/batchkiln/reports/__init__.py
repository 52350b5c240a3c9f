"""Reports of jobs: HTML pages that need no other file and no network."""
