"""A folder whose manifests are taken as they appear, each answered by a file beside it."""
