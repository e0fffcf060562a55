# The image in which Conjure's container backend works. Made by `conjure docker build`.
#
# Change it as you like and build again: sessions that start later use it. Any base with a shell
# will do. What counts at run time: the root file system is read only, commands run as an ordinary
# user without a home of its own, and only /workspace and /tmp can be written to.
FROM debian:stable-slim

RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        bash ca-certificates curl file git jq python3 python3-venv ripgrep unzip xz-utils zip \
    && rm -rf /var/lib/apt/lists/*
