-- When an approval was decided, expired or was withdrawn; null while it waits.
ALTER TABLE approvals ADD COLUMN ended INTEGER;
UPDATE approvals SET ended = json_extract(document_json, '$.ended');

CREATE INDEX remembered_by_approval ON remembered_approvals (approval_id);
