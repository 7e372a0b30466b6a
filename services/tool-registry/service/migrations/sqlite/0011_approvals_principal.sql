-- The principal for which the call of an approval acts, as lists of approvals compare it.
ALTER TABLE approvals ADD COLUMN principal TEXT NOT NULL DEFAULT 'local';
UPDATE approvals SET principal = coalesce(json_extract(document_json, '$.principal'), 'local');
