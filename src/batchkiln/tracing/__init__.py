"""OpenTelemetry spans of a run, recorded by proxies around the worker's ports.

`tracing/tracing.py` starts and stops tracing. `tracing/proxies.py` forwards every call to the port and informs
`tracing/recorder.py`, which knows the purpose of a call. `tracing/span_writer.py` adds the names of jobs and items.
`tracing/exporter.py` alone imports OpenTelemetry.
"""
