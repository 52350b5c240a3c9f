"""The service's SQLite database: functions of a connection and an instant, called inside database jobs."""
