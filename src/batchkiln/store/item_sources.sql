-- name: item_sources -- what items are made from, with what each source offers now
SELECT s.item_id, s.place, s.output, s.rank, s.made_by, s.sha256, i.state AS own_state,
    coalesce(source.name, g.name) AS name, g.id AS group_id, coalesce(source_job.name, group_job.name) AS job,
    source.state AS source_state, source.version_id, source.verdict,
    maker.name AS made_from, maker.id = s.source_id AS is_of_source, made.version AS made_from_number, maker.version_id AS made_from_version, maker.verdict AS made_from_verdict,
    coalesce(offered.sha256, (
        SELECT output.sha256 FROM (
            SELECT item.version_id, row_number() OVER (ORDER BY item.id) AS place, count(*) OVER () AS kept
            FROM item WHERE item.group_id = g.id AND item.state = 'done' AND item.verdict = 'kept'
        ) AS choice
        JOIN output ON output.attempt_id = choice.version_id AND output.number = s.output
        WHERE choice.place = s.rank AND choice.kept >= g.choose)) AS offered
FROM json_each(:ids) AS e
JOIN item AS i ON i.id = e.value
JOIN used_source AS s ON s.item_id = i.id
LEFT JOIN item AS source ON source.id = s.source_id
LEFT JOIN attempt AS made ON made.id = s.made_by
LEFT JOIN item AS maker ON maker.id = made.item_id
LEFT JOIN job AS source_job ON source_job.id = source.job_id
LEFT JOIN variant_group AS g ON g.id = s.group_id
LEFT JOIN job AS group_job ON group_job.id = g.job_id
LEFT JOIN output AS offered ON offered.attempt_id = source.version_id AND offered.number = s.output
    AND source.state = 'done' AND coalesce(source.verdict, 'kept') = 'kept'
    AND (source.needs_review = 0 OR source.verdict = 'kept')
ORDER BY s.item_id, s.place;

-- name: blocked_groups -- those of which too few items can still be kept, with the first item that ended without a result
SELECT g.id, member.name AS item, member.state
FROM json_each(:ids) AS e
JOIN variant_group AS g ON g.id = e.value
JOIN item AS member ON member.id = (
    SELECT min(ended.id) FROM item AS ended
    WHERE ended.group_id = g.id AND ended.state IN ('failed', 'rejected', 'expired', 'canceled', 'held'))
WHERE g.choose > (
    SELECT count(*) FROM item AS other
    WHERE other.group_id = g.id AND coalesce(other.verdict, 'kept') = 'kept'
        AND other.state NOT IN ('failed', 'rejected', 'expired', 'canceled', 'held'));

-- name: waiting_for -- how many queued items wait for what these items make, and for nothing that is there already
SELECT count(DISTINCT s.item_id) FROM json_each(:ids) AS e
JOIN item_source AS s ON s.source_id = e.value AND s.made_by IS NULL
JOIN item AS i ON i.id = s.item_id
WHERE i.state = 'queued' AND i.id NOT IN (SELECT value FROM json_each(:ids));

-- name: waiting_for_queued -- likewise, for the queued items of a job; those of the job itself do not count
SELECT count(DISTINCT s.item_id)
FROM item AS source
JOIN item_source AS s ON s.source_id = source.id AND s.made_by IS NULL
JOIN item AS i ON i.id = s.item_id
WHERE source.state = 'queued' AND source.is_source = 1 AND source.job_id = :job_id
    AND i.state = 'queued' AND i.job_id <> :job_id;

-- name: stale -- items that were made from another file than their source, an item or a group, offers now
SELECT stale.item_id, stale.job_id, (SELECT name FROM job WHERE id = stale.job_id) AS job, stale.state FROM (
    SELECT s.item_id, i.job_id, i.state
    FROM item AS source
    CROSS JOIN used_source AS s ON s.source_id = source.id
    CROSS JOIN item AS i ON i.id = s.item_id
    JOIN output ON output.attempt_id = source.version_id AND output.number = s.output
    WHERE source.is_source = 1 AND source.state = 'done' AND s.made_by IS NOT source.version_id
        AND coalesce(source.verdict, 'kept') = 'kept' AND (source.needs_review = 0 OR source.verdict = 'kept')
        AND output.sha256 <> s.sha256 AND i.state NOT IN ('queued', 'canceled')
    UNION
    SELECT s.item_id, i.job_id, i.state
    FROM used_source AS s
    CROSS JOIN item AS i ON i.id = s.item_id
    JOIN variant_group AS g ON g.id = s.group_id
    WHERE s.group_id IS NOT NULL AND i.state NOT IN ('queued', 'canceled')
        AND s.sha256 <> (
            SELECT output.sha256 FROM (
                SELECT item.version_id, row_number() OVER (ORDER BY item.id) AS place, count(*) OVER () AS kept
                FROM item WHERE item.group_id = g.id AND item.state = 'done' AND item.verdict = 'kept'
            ) AS choice
            JOIN output ON output.attempt_id = choice.version_id AND output.number = s.output
            WHERE choice.place = s.rank AND choice.kept >= g.choose)
) AS stale;
