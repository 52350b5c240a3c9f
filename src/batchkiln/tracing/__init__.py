"""OpenTelemetry spans of a run, by objects that stand around the worker's ports.

`tracing/tracing.py` begins and ends it; `tracing/proxies.py` passes every call on to `tracing/recorder.py`, which
knows what a call was for; `tracing/span_writer.py` names jobs and items; `tracing/exporter.py` alone imports
OpenTelemetry.
"""
