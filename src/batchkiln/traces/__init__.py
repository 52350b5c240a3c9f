"""OpenTelemetry spans of a drive, by objects that stand around the scheduler's ports.

`traces/tracing.py` begins and ends it; `traces/around.py` passes every call on and tells `traces/recorder.py`, which
knows what a call was for; `traces/writer.py` names jobs and items; `traces/emitter.py` alone knows OpenTelemetry.
"""
