"""The admin port: what the people and scripts that run the proxy may see and do."""
