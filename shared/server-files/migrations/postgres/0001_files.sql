-- Contents of files, once for each tenant. A content without a file is removed a day after its last use.
CREATE TABLE core.content (
    tenant text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    bytes  bigint           NOT NULL,
    used   timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, digest)
);
CREATE INDEX content_by_use ON core.content (used);

-- The bytes of a content, in pieces of 1 MiB.
CREATE TABLE core.content_chunk (
    tenant text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    number bigint           NOT NULL,
    data   bytea            NOT NULL,
    PRIMARY KEY (tenant, digest, number),
    FOREIGN KEY (tenant, digest) REFERENCES core.content ON DELETE CASCADE
);
-- Most large files are compressed already.
ALTER TABLE core.content_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

-- Places with files: the workspace of a conversation, the blobs of a caller. `version` grows with each change.
CREATE TABLE core.file_place (
    tenant  text COLLATE "C" NOT NULL,
    place   text COLLATE "C" NOT NULL,
    owner   text,
    version bigint           NOT NULL,
    PRIMARY KEY (tenant, place)
);

-- The files of places. `modified` is in nanoseconds since 1970.
CREATE TABLE core.file (
    tenant   text COLLATE "C" NOT NULL,
    place    text COLLATE "C" NOT NULL,
    path     text COLLATE "C" NOT NULL,
    digest   text COLLATE "C" NOT NULL,
    bytes    bigint           NOT NULL,
    modified bigint           NOT NULL,
    PRIMARY KEY (tenant, place, path),
    FOREIGN KEY (tenant, place) REFERENCES core.file_place ON DELETE CASCADE,
    FOREIGN KEY (tenant, digest) REFERENCES core.content
);
CREATE INDEX file_by_content ON core.file (tenant, digest);
