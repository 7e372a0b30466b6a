-- Packages of plugins as archives, by the digest of their files. They belong to the installation.
CREATE TABLE plugin_package (
    digest  TEXT PRIMARY KEY,
    archive BLOB NOT NULL
) STRICT;
