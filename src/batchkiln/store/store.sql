-- name: insert_account
INSERT INTO account (profile, name) VALUES (:profile, :name) ON CONFLICT DO NOTHING;

-- name: select_account
SELECT id FROM account WHERE profile = :profile AND name = :name;
