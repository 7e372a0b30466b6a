-- Definitions that were saved, and the request ids that saved them, move to the tables of all documents. The texts
-- that open runs execute stay in `definitions`.
INSERT INTO document (tenant, kind, id, version, text)
    SELECT 'default', 'workflow', w.id, 1, d.text FROM workflows w JOIN definitions d ON d.hash = w.hash;

INSERT INTO request (tenant, method, scope, request_id, body_hash, answer, created)
    SELECT 'default', 'PutWorkflow', '', request_id, body_hash, '', created FROM put_requests;

DROP TABLE put_requests;
DROP TABLE workflows;
