-- Attempts that brought no result and were not refunded, or may not have been: what `retry` warns of. They are rare,
-- where a job may have a million that were refunded.

CREATE INDEX attempt_paid_for_nothing ON attempt (job_id)
    WHERE state IN ('canceled', 'expired', 'abandoned', 'disputed');
