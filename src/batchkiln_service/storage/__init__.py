"""The storage host: signed links, the PUT of uploads, and downloads. Outside of the API: no key and no window."""
