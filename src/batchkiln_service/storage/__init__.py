"""The storage: uploads and downloads by signed links, outside the API, without keys and rate limits."""
