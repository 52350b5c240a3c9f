"""What the service remembers, in SQLite: functions of a connection and an instant, called inside database jobs."""
