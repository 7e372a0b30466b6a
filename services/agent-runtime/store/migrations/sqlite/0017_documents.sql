-- Profiles, scenes, projects and request ids move to the tables of all documents.
INSERT INTO document (tenant, kind, id, version, text)
    SELECT 'default', 'profile', profile_id, 1, text FROM profiles
    UNION ALL SELECT 'default', 'scene', scene_id, 1, text FROM scenes
    UNION ALL SELECT 'default', 'project', document_id, 1, text FROM revisions r
        WHERE kind = 'project' AND revision = (SELECT max(revision) FROM revisions n
            WHERE n.kind = 'project' AND n.document_id = r.document_id);

INSERT INTO document_revision
    (tenant, kind, id, revision, etag, label, from_file, same_version_as, created, text)
    SELECT 'default', kind, document_id, revision, etag, label, from_file, same_version_as, created, text
    FROM revisions;

INSERT INTO request (tenant, method, scope, request_id, body_hash, answer, created)
    SELECT 'default', 'PutProfile', '', request_id, body_hash, '', unixepoch() * 1000000000 FROM put_requests
    UNION ALL SELECT 'default', 'AppendMessages', conversation_id, request_id, body_hash,
        CAST(revision AS TEXT), unixepoch() * 1000000000 FROM append_requests
    UNION ALL SELECT 'default', 'WriteKnowledge', kb_id, request_id, body_hash,
        json_object('caiu_id', caiu_id, 'version', version,
            'is_enabled', json(CASE is_enabled WHEN 0 THEN 'false' ELSE 'true' END)),
        unixepoch() * 1000000000 FROM knowledge_requests
    UNION ALL SELECT 'default', 'UpdateState', conversation_id, profile_id || char(31) || request_id, body_hash,
        CAST(version AS TEXT), unixepoch() * 1000000000 FROM private_states WHERE request_id <> '';

DROP TABLE profiles;
DROP TABLE scenes;
DROP TABLE revisions;
DROP TABLE put_requests;
DROP TABLE append_requests;
DROP TABLE knowledge_requests;
DROP INDEX private_states_by_request;
ALTER TABLE private_states DROP COLUMN body_hash;
