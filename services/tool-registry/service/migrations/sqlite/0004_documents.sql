-- Tools, gRPC servers and request ids move to the tables of all documents.
INSERT INTO document (tenant, kind, id, version, text)
    SELECT 'default', 'tool', tool_id, 1, definition_json FROM tools
    UNION ALL SELECT 'default', 'backend', name, 1,
        json_object('endpoint', endpoint, 'descriptors', lower(hex(descriptors))) FROM backends;

INSERT INTO request (tenant, method, scope, request_id, body_hash, answer, created)
    SELECT 'default', method, '', request_id, unhex(body_hash), '', unixepoch() * 1000000000 FROM requests;

DROP TABLE tools;
DROP TABLE backends;
DROP TABLE requests;
