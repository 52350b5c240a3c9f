"""The only place that builds real objects and joins them: queue, clock, client, outputs, and the local service."""
