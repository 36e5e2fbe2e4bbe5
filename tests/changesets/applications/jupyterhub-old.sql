-- The schema of jupyterhub 1.5.1, as it creates it.
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE servers (
	id INTEGER NOT NULL, 
	proto VARCHAR(15), 
	ip VARCHAR(255), 
	port INTEGER, 
	base_url VARCHAR(255), 
	cookie_name VARCHAR(255), 
	PRIMARY KEY (id)
);
CREATE TABLE groups (
	id INTEGER NOT NULL, 
	name VARCHAR(255), 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
CREATE TABLE users (
	id INTEGER NOT NULL, 
	name VARCHAR(255), 
	admin BOOLEAN, 
	created DATETIME, 
	last_activity DATETIME, 
	cookie_id VARCHAR(255) NOT NULL, 
	state TEXT, 
	encrypted_auth_state BLOB, 
	PRIMARY KEY (id), 
	UNIQUE (name), 
	UNIQUE (cookie_id)
);
CREATE TABLE oauth_clients (
	id INTEGER NOT NULL, 
	identifier VARCHAR(255), 
	description VARCHAR(1023), 
	secret VARCHAR(255), 
	redirect_uri VARCHAR(1023), 
	PRIMARY KEY (id), 
	UNIQUE (identifier)
);
CREATE TABLE user_group_map (
	user_id INTEGER NOT NULL, 
	group_id INTEGER NOT NULL, 
	PRIMARY KEY (user_id, group_id), 
	FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE, 
	FOREIGN KEY(group_id) REFERENCES groups (id) ON DELETE CASCADE
);
CREATE TABLE spawners (
	id INTEGER NOT NULL, 
	user_id INTEGER, 
	server_id INTEGER, 
	state TEXT, 
	name VARCHAR(255), 
	started DATETIME, 
	last_activity DATETIME, 
	user_options TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE, 
	FOREIGN KEY(server_id) REFERENCES servers (id) ON DELETE SET NULL
);
CREATE TABLE services (
	id INTEGER NOT NULL, 
	name VARCHAR(255), 
	admin BOOLEAN, 
	_server_id INTEGER, 
	pid INTEGER, 
	PRIMARY KEY (id), 
	UNIQUE (name), 
	FOREIGN KEY(_server_id) REFERENCES servers (id) ON DELETE SET NULL
);
CREATE TABLE oauth_access_tokens (
	id INTEGER NOT NULL, 
	client_id VARCHAR(255), 
	grant_type VARCHAR(18) NOT NULL, 
	expires_at INTEGER, 
	refresh_token VARCHAR(255), 
	refresh_expires_at INTEGER, 
	user_id INTEGER, 
	session_id VARCHAR(255), 
	hashed VARCHAR(255), 
	prefix VARCHAR(16), 
	created DATETIME, 
	last_activity DATETIME, 
	PRIMARY KEY (id), 
	FOREIGN KEY(client_id) REFERENCES oauth_clients (identifier) ON DELETE CASCADE, 
	FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE, 
	UNIQUE (hashed)
);
CREATE INDEX ix_oauth_access_tokens_prefix ON oauth_access_tokens (prefix);
CREATE TABLE oauth_codes (
	id INTEGER NOT NULL, 
	client_id VARCHAR(255), 
	code VARCHAR(36), 
	expires_at INTEGER, 
	redirect_uri VARCHAR(1023), 
	session_id VARCHAR(255), 
	user_id INTEGER, 
	PRIMARY KEY (id), 
	FOREIGN KEY(client_id) REFERENCES oauth_clients (identifier) ON DELETE CASCADE, 
	FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);
CREATE TABLE api_tokens (
	user_id INTEGER, 
	service_id INTEGER, 
	id INTEGER NOT NULL, 
	hashed VARCHAR(255), 
	prefix VARCHAR(16), 
	created DATETIME, 
	expires_at DATETIME, 
	last_activity DATETIME, 
	note VARCHAR(1023), 
	PRIMARY KEY (id), 
	FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE, 
	FOREIGN KEY(service_id) REFERENCES services (id) ON DELETE CASCADE, 
	UNIQUE (hashed)
);
CREATE INDEX ix_api_tokens_prefix ON api_tokens (prefix);
